"""The benchmark of kills runs, and its committed result says that none broke anything."""

import json
import subprocess
import sys

from benchmarks.study import RESULTS, ROOT


def test_small() -> None:
    done = subprocess.run([sys.executable, "-m", "benchmarks.crash_matrix", "--small"], capture_output=True, text=True,
                          check=False, cwd=ROOT)  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["found"]
    assert [mode["broken"] for mode in found["modes"].values()] == [[]] * len(found["modes"])
    assert all(mode["kills"] == 3 for mode in found["modes"].values())


def test_what_was_found() -> None:
    found = json.loads((RESULTS / "crash_matrix.json").read_text())["found"]
    assert sum(mode["kills"] for mode in found["modes"].values()) >= 270
    assert all(mode["broken"] == [] for mode in found["modes"].values())
    repeated = [mode for name, mode in found["modes"].items() if name != "private"]  # whose noise is fresh each time
    assert all(mode["of_them_the_coordinator"] == 0 for mode in repeated)
    assert all(one["models"] <= 3.2 for one in found["memory"] if one["optimizer"] == "sgd")
