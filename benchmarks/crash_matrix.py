"""SIGKILL of the coordinator and of each site at every crash point, in six kinds of plans, and what a round takes of memory.

python -m benchmarks.crash_matrix            # about five minutes of one core; writes results/crash_matrix.json
python -m benchmarks.crash_matrix --small    # seconds, to see that the script works; no finding
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

from tests.promises.matrix import CASES, COORDINATOR, cases

from benchmarks.study import RESULTS, ROOT, Json, made, write

SIZES = ((5, 1_000_000, "sgd"), (20, 1_000_000, "sgd"), (5, 10_000_000, "sgd"), (20, 4_000_000, "sgd"),
         (20, 4_000_000, "momentum"), (20, 4_000_000, "adam"))  # fmt: skip
_QUIET = {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}


def _lines(*command: str) -> list[Json]:
    done = subprocess.run([sys.executable, "-m", *command], check=True, capture_output=True, text=True, cwd=ROOT,
                          env={**os.environ, **_QUIET})  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def killed(mode: str, small: bool) -> Json:
    """Return what came of every kill in one kind of plan."""
    wanted = [{"mode": mode, "actor": "", "point": "", "passage": 1}, *cases(mode)[: 3 if small else None]]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(wanted, file)
        file.flush()
        unbroken, *found = _lines("tests.promises.matrix", file.name)
    broken = [one for one in found if one["fault"] or one["violation"] or one["status"] != "done"]
    same = [one for one in found if one not in broken and one["model"] == unbroken["model"]]
    fewer = [one for one in found if one not in broken and one["answered"] != unbroken["answered"]]
    return {
        "kills": len(found),
        "points": len({one["point"] for one in found}),
        "broken": broken,
        "model_of_the_unbroken_run": len(same),  # of "private" none: its noise is fresh
        "answers_missing": [[one["actor"], one["point"]] for one in fewer],
        "of_them_the_coordinator": sum(one["actor"] == COORDINATOR for one in fewer),
    }


def main() -> None:
    """Run the kills and write what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a few kills, to see that the script works")
    small = parser.parse_args().small
    sizes = SIZES[:1] if small else SIZES
    found = {
        "modes": {mode: killed(mode, small) for mode in CASES},
        "memory": [_lines("tests.promises.memory", *map(str, size))[0] for size in sizes],
    }
    result = {"made": made("crash_matrix", small), "found": found}
    if small:
        print(json.dumps(result, indent=1))
    else:
        write(RESULTS / "crash_matrix.json", result)


if __name__ == "__main__":
    main()
