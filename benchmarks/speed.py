"""Speed: CPU time of a run beside a bare PyTorch loop, cost of the ledger and of budget checks, memory over 1000 rounds.

python -m benchmarks.speed            # ten minutes; writes results/speed.json and SPEED.md
python -m benchmarks.speed --small    # seconds, to see that the script works; no finding

Each part runs in a process of its own, on one thread, so that none inherits another's memory.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.study import RESULTS, ROOT, Json, made
from benchmarks.timing import page
from benchmarks.timing.budget import budget_checks
from benchmarks.timing.clipping import CASES, clipping_steps
from benchmarks.timing.ledger import ledger_cost
from benchmarks.timing.memory import memory
from benchmarks.timing.paired import compare
from benchmarks.timing.private import private_steps
from benchmarks.timing.workloads import CNN, LEDGER, LINEAR

Part = Callable[[Path, bool], Json]

PARTS: dict[str, Part] = {
    "linear": lambda folder, small: compare(LINEAR.sized(100, 10) if small else LINEAR, folder, 10 if small else 200),
    "cnn": lambda folder, small: compare(CNN.sized(20, 2) if small else CNN, folder, 2 if small else 30),
    "ledger": lambda folder, small: ledger_cost(LEDGER, folder, 10 if small else 200),
    "budget": lambda folder, small: budget_checks(folder, 120 if small else 2000),
    "memory": lambda folder, small: (
        memory(LINEAR.sized(100, 10), folder, 60, 20) if small else memory(LINEAR, folder, 1000, 100)
    ),
    "private": lambda _folder, small: private_steps(3 if small else 31),
    "clipping": lambda _folder, small: clipping_steps(2 if small else 15, tuple(CASES)[:1] if small else tuple(CASES)),
}  # fmt: skip
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def machine() -> Json:
    """Return what the figures depend on: processor, cores, memory, how busy it is, where files lie."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    models = [line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": platform.system(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }


def run_part(name: str, small: bool) -> Json:
    """Run one part in a fresh process and return what it measured."""
    print(f"{name} ...", file=sys.stderr, flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.speed", "--part", name, *(["--small"] if small else [])],
        cwd=ROOT, env={**os.environ, **ONE_THREAD}, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    measured: Json = json.loads(done.stdout)
    return measured


def main() -> None:
    """Run every part, or one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed")
    parser.add_argument("--small", action="store_true", help="seconds, to see that the script works; no finding")
    parser.add_argument("--part", choices=PARTS, help="measure one part in this process and print it")
    parser.add_argument("--only", choices=PARTS, action="append", help="measure these parts anew, keep the others")
    parser.add_argument("--page", action="store_true", help="only write SPEED.md from the result file")
    options = parser.parse_args()
    place = RESULTS / ("speed-small.json" if options.small else "speed.json")
    torch.set_num_threads(1)
    if options.part:
        with tempfile.TemporaryDirectory() as folder:
            json.dump(PARTS[options.part](Path(folder), options.small), sys.stdout)
        return
    result: Json = json.loads(place.read_text()) if place.exists() else {"study": "speed", "parts": {}}
    for name in () if options.page else options.only or PARTS:
        how, started = made(f"speed --only {name}", options.small), time.monotonic()
        measured = run_part(name, options.small)
        how["seconds"] = round(time.monotonic() - started, 1)
        result["parts"][name] = {"made": how, "machine": machine(), **measured}
        place.parent.mkdir(exist_ok=True)
        place.write_text(json.dumps(result, indent=1) + "\n")
    if not options.small:
        (ROOT / "benchmarks" / "SPEED.md").write_text(page.section(result["parts"]), encoding="utf-8")


if __name__ == "__main__":
    main()
