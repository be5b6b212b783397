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


@pytest.mark.parametrize(("point", "passage", "missing"), [
    ("site.after_reserve", 2, 3), ("session.keep.written", 3, 3), ("session.keep.committed", 3, 2),
    ("ledger.commit.written", 2, 2), ("site.after_commit", 2, 0),
])  # fmt: skip
def test_where_noise_is_fresh_a_kill_costs_one_answer_and_no_more(
    point: str, passage: int, missing: int, place: Path
) -> None:
    report = killed("private", "Cork", point, passage, place)
    assert (report["fault"], report["violation"], report["killed"]) == ("", "", {"Cork": 1})
    answered = report["answered"]
    assert isinstance(answered, list)
    assert [number for number, names in enumerate(answered, 1) if "Cork" not in names] == [missing] * bool(missing)
    assert report["reserved"] == dict.fromkeys(("Arnhem", "Bergen", "Cork", "Derby"), 3)
