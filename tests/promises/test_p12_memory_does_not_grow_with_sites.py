"""P12. A round takes at most three models and 64 kB a site at the coordinator, however many sites there are (plain averaging)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PARAMETERS = 2_000_000
SLACK = 1.02  # what an interpreter does beside it, over three models


def measured(sites: int, optimizer: str = "sgd") -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.promises.memory", f"{sites}", f"{PARAMETERS}", optimizer], check=True, text=True,
        capture_output=True, cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"},
    )  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's /proc")
@pytest.mark.parametrize("sites", [5, 20])
def test_three_models_and_64_kb_a_site(sites: int) -> None:
    assert measured(sites)["growth"] <= 3 * 4 * PARAMETERS * SLACK + sites * (1 << 16)
