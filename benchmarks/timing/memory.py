"""Whether a long run grows: resident memory, open files and bytes on disk, every so many rounds."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import consilia
from benchmarks.timing.clock import digits
from benchmarks.timing.workloads import Workload
from consilia.core.canonical import Json

PAGE = os.sysconf("SC_PAGE_SIZE")


def resident() -> float:
    """Return this process's resident memory in MB (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 1e6


def open_files() -> int:
    """Return the number of this process's open files (Linux)."""
    return len(os.listdir("/proc/self/fd"))


def memory(work: Workload, folder: Path, rounds: int, every: int) -> dict[str, Json]:
    """Train a workload and look at the process every so many rounds.

    Args:
        work: What to train.
        folder: A fresh folder.
        rounds: Rounds in all.
        every: Rounds between two looks; what comes before the first is not judged.
    """
    os.environ["CONSILIA_HOME"] = str(folder / "home")
    out = folder / f"run-{work.name}"
    seen: list[dict[str, float]] = []

    def on_round(record: Mapping[str, Json]) -> None:
        number = cast("int", record["round"])
        if number % every == 0:
            disk = sum(path.stat().st_size for path in out.iterdir()) / 1e6
            seen.append({"round": number, "resident_mb": resident(), "open_files": open_files(), "run_folder_mb": disk})

    consilia.run(work.plan(folder, rounds), out=out, on_round=on_round)
    first, last = seen[0], seen[-1]
    growth = (last["resident_mb"] / first["resident_mb"] - 1) / (last["round"] - first["round"])
    return {
        "workload": work.name, "sites_a_round": work.cohort, "rounds": rounds,
        "growth_percent_per_1000_rounds": digits(1e5 * growth),
        "open_files_change": int(last["open_files"] - first["open_files"]),
        "seen": [{key: digits(value) if key != "round" else int(value) for key, value in look.items()} for look in seen],
    }  # fmt: skip
