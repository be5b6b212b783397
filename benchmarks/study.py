"""What every accuracy study shares: cases, seeded runs of the product, and one JSON file that says how it was made."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

import consilia

ROOT = Path(__file__).resolve().parent.parent
PLANS = ROOT / "examples" / "plans"
RESULTS = ROOT / "benchmarks" / "results"

Json = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One row of a table: a plan with changes, run once a seed.

    Attributes:
        name: The row's name, unique in its study.
        plan: The plan file.
        changes: Overrides as `consilia run --set` takes them.
        seeds: Public seeds: partition, split, initial weights, client sampling. Noise is fresh in every run.
        labels: What the table prints beside the numbers, as in {"epsilon": "5"}.
    """

    name: str
    plan: Path
    changes: tuple[str, ...]
    seeds: tuple[int, ...]
    labels: Json


@dataclass(frozen=True)
class Study:
    """One script: what it runs and how its table reads.

    Attributes:
        name: The script's and the result file's name.
        measure: small -> the study's own part of the result; small takes seconds.
        section: The whole result -> the README's section, in Markdown.
    """

    name: str
    measure: Callable[[bool], Json]
    section: Callable[[Json], str]


Score = Callable[[consilia.Plan, consilia.RunResult], Json]
Train = Callable[[consilia.Plan, Path], consilia.RunResult]


def run_case(case: Case, *, curve: bool = False, score: Score | None = None, train: Train | None = None) -> Json:
    """Run a case for each of its seeds and return its plan and what came out.

    Args:
        case: What to run.
        curve: Keep the accuracy of every evaluated round, as [[round, accuracy], ...].
        score: Gives more numbers of a run, kept beside the usual ones.
        train: Runs the plan in a folder in another way than `consilia.run`.
    """
    runs = []
    for seed in case.seeds:
        plan = consilia.load(case.plan, set=[*case.changes, f"run.seed={seed}"])
        # A fresh ledger for each run: seeds repeat one experiment, they are not one more use of the rows.
        with (
            tempfile.TemporaryDirectory(dir=scratch()) as folder,
            patch.dict(os.environ, CONSILIA_HOME=str(Path(folder) / "home")),
        ):
            out = Path(folder) / "run"
            result = consilia.run(plan, out=out) if train is None else train(plan, out)
            more = score(plan, result) if score else {}
        runs.append({"seed": seed, **_kept(result), **more})
        if curve:
            runs[-1]["curve"] = [[r["round"], r["accuracy"]] for r in result.records if r["accuracy"] is not None]
    print(f"{case.name}: accuracy {[round(run['accuracy'], 4) for run in runs[:5]]}", file=sys.stderr, flush=True)
    stated = consilia.load(case.plan, set=list(case.changes)).model_dump(mode="json")
    for section, key in (("data", "path"), ("model", "initial")):
        if stated[section][key]:  # where the file lay says nothing about the study
            stated[section][key] = Path(stated[section][key]).name
    return {"name": case.name, "labels": case.labels, "seeds": list(case.seeds), "plan": stated, "runs": runs}


def _kept(result: consilia.RunResult) -> Json:
    summary = result.summary
    kept: Json = {
        key: summary[key]
        for key in (
            "accuracy", "accuracy_mean_over_sites", "accuracy_variance", "epsilon", "delta", "noise_multiplier", "rounds",
            "bytes_up", "accountant",
        )
    }  # fmt: skip
    per_site = summary["per_site"]
    assert isinstance(per_site, dict)
    kept["per_site"] = {site: score["accuracy"] for site, score in per_site.items() if isinstance(score, dict)}
    kept["skipped"] = sum(record["status"] == "skipped" for record in result.records)
    kept["seconds"] = summary["seconds"]
    return kept


def shared(*parts: str) -> Path | None:
    """Return where a file of the folder of shared data lies, or None while it is not there."""
    place = Path(os.environ.get("CONSILIA_SHARED_DATA", ROOT.parent / "shared" / "data")).joinpath(*parts)
    return place if place.is_file() else None


def scratch() -> str | None:
    """Return a folder in memory where there is one: these ledgers are thrown away, so they need no disk."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108


def seeds(first: int, count: int, *, small: bool) -> tuple[int, ...]:
    """Return `count` seeds from `first` on; two when small."""
    return tuple(range(first, first + (2 if small else count)))


def main(study: Study, arguments: Sequence[str] | None = None) -> Json:
    """Run a study from the command line and write its result file."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{study.name}")
    parser.add_argument("--small", action="store_true", help="seconds, to see that the script works; no finding")
    parser.add_argument("--out", type=Path, default=None, help="result file; benchmarks/results/<study>.json")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    how, started = made(study.name, options.small), time.monotonic()  # before it runs: the code may move on meanwhile
    body = study.measure(options.small)
    how["seconds"] = round(time.monotonic() - started, 1)
    result: Json = {"study": study.name, "made": how, **body}
    place = options.out or RESULTS / (f"{study.name}-small.json" if options.small else f"{study.name}.json")
    write(place, result)
    print(place)
    return result


def made(name: str, small: bool) -> Json:
    """Return how a result comes about: command, code, versions, day."""
    return {
        "command": f"python -m benchmarks.{name}" + (" --small" if small else ""),
        "commit": _git("rev-parse", "HEAD"),
        "changed_since": _git("status", "--porcelain", "--", "src", "benchmarks/*.py", "examples").splitlines(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "threads": torch.get_num_threads(),
        "versions": {
            "python": sys.version.split()[0],
            **{package: version(package) for package in ("consilia", "torch", "numpy", "dp-accounting")},
        },
    }


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.rstrip() if done.returncode == 0 else "unknown"


def write(place: Path, result: Json) -> None:
    """Write a result: indented, but numbers of one list on one line."""
    place.parent.mkdir(parents=True, exist_ok=True)
    cases = result.get("cases", [])
    head = {key: value for key, value in result.items() if key != "cases"}
    text = json.dumps(head, indent=1)[:-2] + ',\n "cases": [\n'
    text += ",\n".join("  " + _case(case) for case in cases) + "\n ]\n}\n"
    place.write_text(text, encoding="utf-8")


def _case(case: Json) -> str:
    runs = ",\n    ".join(json.dumps(run) for run in case["runs"])
    head = json.dumps({key: value for key, value in case.items() if key != "runs"})
    return f'{head[:-1]}, "runs": [\n    {runs}]}}'


def read(name: str) -> Json | None:
    """Return a study's result, or None while there is none."""
    place = RESULTS / f"{name}.json"
    if not place.exists():
        return None
    result: Json = json.loads(place.read_text(encoding="utf-8"))
    return result


def by_name(result: Json) -> dict[str, Json]:
    """Return a result's cases by their names."""
    return {case["name"]: case for case in result["cases"]}


def column(case: Json, key: str) -> list[float]:
    """Return one number of every run of a case."""
    return [float(run[key]) for run in case["runs"]]


def run_cases(cases: Iterable[Case], *, curve: bool = False, score: Score | None = None) -> list[Json]:
    """Run cases one after the other."""
    return [run_case(case, curve=curve, score=score) for case in cases]
