"""P6. One bad site cannot stop the others: what it sends is dropped with a reason, and the round goes on if a quorum holds."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.promises.fleet import Case, Fleet, entropy_for, with_stores
from tests.promises.scenes import Touched

from consilia.rounds.ports import Arrival
from consilia.transport.inprocess import InProcess

BAD = {"nothing": b"", "noise": bytes(range(256)) * 4, "half a frame": None, "another name": b"?"}


class Bad(Touched):
    kind: str

    def changed(self, arrival: Arrival) -> Iterator[Arrival]:
        if arrival.site != "Bergen":
            yield arrival
            return
        frame = bytes(arrival.frame)
        sent = {"half a frame": frame[: len(frame) // 2], "another name": frame.replace(b"Bergen", b"Arnhem")}
        yield Arrival("Bergen", sent.get(self.kind, BAD[self.kind] or b""))


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("mode", ["clear", "masks"])
def test_a_site_that_sends_rubbish_is_dropped_and_the_run_ends(mode: str, kind: str, place: Path, shelf: Path) -> None:
    case = Case(mode)
    fleet = Fleet(case, with_stores(case, place, shelf), entropy_for(case, 0))
    sites = {name: fleet.open_site(name) for name in case.names}
    wire = Bad(InProcess({name: site.handle for name, (site, _) in sites.items()}, lambda: 0.0))
    wire.kind = kind
    with fleet.open_journal() as journal:
        coordinator = fleet.coordinator(journal, wire, lambda: 0.0)
        coordinator.train()
        fleet.finish(coordinator, journal)
        assert journal.status == "done"
    with closing(sqlite3.connect(fleet.journal_path)) as sql:
        records = [json.loads(row[0]) for row in sql.execute("SELECT record FROM records ORDER BY round")]
    assert [record["answered"] for record in records] == [["Arnhem", "Cork", "Derby"]] * 3
    assert all(set(record["dropped"]) == {"Bergen"} and record["dropped"]["Bergen"] for record in records)
    for _, store in sites.values():
        store.close()
