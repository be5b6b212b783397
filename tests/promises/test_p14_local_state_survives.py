"""P14. What a site keeps from round to round survives a restart, and goes with the round: what it kept of a round that did not
count is not used.
"""

from pathlib import Path

import pytest
from tests.promises.fleet import Case
from tests.promises.scenes import calm, killed


@pytest.mark.parametrize(
    "point", ["site.before_commit", "ledger.seal.written", "ledger.seal.committed", "site.after_commit"]
)
def test_killed_while_it_keeps_its_state_a_site_goes_on_from_it(point: str, place: Path) -> None:
    """Each update holds what the site kept before; the oracle computes it again, and the model is the unbroken run's."""
    unbroken = killed("kept", "coordinator", "", 0, place)
    report = killed("kept", "Bergen", point, 2, place)
    assert report["killed"] == {"Bergen": 1}
    assert (report["fault"], report["violation"], report["model"]) == ("", "", unbroken["model"])


def test_rounds_that_did_not_count_leave_no_state(place: Path, shelf: Path) -> None:
    for seed in range(8):
        calm(Case("clear", rounds=4), place / str(seed), shelf, {"drop": 0.2, "kill site": 0.03}, seed).run()
