"""P2. Budget is never under-counted: the charge is on the site's disk before anything computed from its rows leaves it, and a
kill turns a reservation into a charge.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.promises.fleet import RUN, Case
from tests.promises.scenes import calm, killed

from consilia.core.update import ProtocolMessage, Release


def test_each_release_finds_its_charge_on_disk(place: Path, shelf: Path) -> None:
    world = calm(Case("dp"), place, shelf)
    left = world.oracle.left
    seen = []

    def looked(site: str, task: ProtocolMessage, answer: Release | ProtocolMessage, frame: bytes) -> None:
        if isinstance(answer, Release):
            with closing(sqlite3.connect(world.fleet.site_path(site))) as sql:
                (charged,) = sql.execute(
                    "SELECT count(*) FROM entries WHERE kind = 'reserve' AND run = ?", (RUN,)
                ).fetchone()
            seen.append((site, task.kind, task.round, charged))
        left(site, task, answer, frame)

    world.oracle.left = looked  # type: ignore[method-assign]
    world.run()
    # Three updates, and scores after round 2 and of the result: each found one charge more.
    assert [charged for site, *_, charged in seen if site == "Cork"] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("point", ["site.after_reserve", "ledger.commit.charged", "site.after_commit"])
def test_a_kill_refunds_nothing(point: str, place: Path) -> None:
    report = killed("secure+dp", "Bergen", point, 2, place)
    assert (report["fault"], report["violation"]) == ("", "")
    assert report["killed"] == {"Bergen": 1}
    assert report["reserved"] == dict.fromkeys(("Arnhem", "Bergen", "Cork", "Derby"), 3)
