"""The table of faults names tests that exist, and no fault is missing from it."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLE = (Path(__file__).parent / "README.md").read_text()
FAULTS = (
    "dropout before READY", "dropout after READY", "dropout after share", "dropout during masked upload",
    "dropout before unmask", "late: round r in r + 1", "same upload twice", "same upload, another body", "reordered",
    "replay of an old signed message", "body truncated at byte k", "flipped byte", "slow link", "black hole", "RST mid-body",
    "half-open", "server SIGKILL at each journal step", "client SIGKILL at each step", "SIGSTOP, then SIGCONT",
    "disk full at each write", "read-only disk", "fsync error", "memory limit", "clock + 1 h", "clock - 1 h",
    "clock + 10 years", "clock jumps during a round", "certificate not yet valid", "client of version n - 1",
    "model hash mismatch", "wrong shape", "wrong dtype", "missing key", "NaN", "Inf", "zero", "1e38", "claimed count 0",
    "claimed count negative", "claimed count 1e12", "claimed count NaN", "two clients with one identity",
    "one unreadable record of 1910", "all clients fail", "quorum lost in the unmask step",
)  # fmt: skip
ROWS = dict(re.findall(r"^\| (.+?) \| (`.*`) \|$", TABLE, re.MULTILINE))


@cache
def names_in(path: Path) -> frozenset[str]:
    return frozenset(node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_has_a_row(fault: str) -> None:
    assert fault in ROWS


@pytest.mark.parametrize("fault", ROWS)
def test_every_test_of_the_table_exists(fault: str) -> None:
    named = re.findall(r"`([^`]+)`", ROWS[fault])
    assert named
    for test in named:
        path, _, name = test.partition("::")
        assert name in names_in(ROOT / path), test
