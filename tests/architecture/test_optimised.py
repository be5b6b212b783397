"""`python -O` changes no answer: the checks that protect patients are not assert statements."""

import subprocess
import sys
from pathlib import Path


def answers(*flags: str) -> list[str]:
    script = Path(__file__).with_name("refusals.py")
    done = subprocess.run(
        [sys.executable, *flags, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_optimised_python_refuses_what_plain_python_refuses() -> None:
    (how, *plain), (other, *optimised) = answers(), answers("-O")
    assert (how, other) == ("plain", "optimised")
    assert optimised == plain
    assert len(plain) >= 18
    assert not [line for line in plain if line.endswith("accepted")]
