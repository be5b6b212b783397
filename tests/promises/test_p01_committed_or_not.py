"""P1. A round is committed or it is not: its model, record, charges and number are one transaction. Killed at any moment, a
coordinator stands at round r or at round r + 1, never between.
"""

from pathlib import Path

import pytest
from tests.promises.scenes import killed

STEPS = ("before", "written", "committed")


@pytest.mark.parametrize("step", STEPS)
def test_killed_in_its_commit_a_round_is_whole_or_absent(step: str, place: Path) -> None:
    """SIGKILL in the transaction of round 2; the oracle reads the journal, and the run ends as the unbroken one does."""
    unbroken = killed("plain", "coordinator", "", 0, place)
    report = killed("plain", "coordinator", f"journal.commit.{step}", 2, place)
    assert report["killed"] == {"coordinator": 1}
    assert report["violation"] == ""
    assert report["model"] == unbroken["model"]
    assert report["rounds"] == ["counted"] * 3
