"""Rows that change show in the ledger; the budget goes on."""

from pathlib import Path

from consilia.core.spec import Adjacency
from consilia.dp.event import Event
from consilia.dp.ledger import Allotment
from consilia.store.fingerprint import DataChange
from consilia.store.ledger_store import SiteStore

EVENT = Event(1.0, 0.01, 10)


def allotment(run: str) -> Allotment:
    return Allotment(run, "p", ((EVENT, 9),), 0.5, 1e-5, Adjacency.ADD_REMOVE, "server")


def charge(path: Path, run: str, rows: str, *rounds: int) -> None:
    with SiteStore.open(path, "A") as store:
        store.allot(allotment(run), fingerprint=rows, limit=2.0)
        for round in rounds:
            store.reserve(run, round, "update", EVENT, reuse_open=False)


def told(path: Path) -> list[tuple[str, int]]:
    with SiteStore.open(path, "A") as store:
        return [(change.run, change.round) for change in store.data_changes("p")]


def test_each_change_is_listed_once_with_the_charge_that_met_it(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    charge(path, "one", "rows of May", 1, 2)
    charge(path, "one", "rows of May", 3)
    assert told(path) == []
    charge(path, "one", "rows of June", 4, 5)  # resumed on other rows
    assert told(path) == [("one", 4)]
    charge(path, "two", "rows of June", 1)
    charge(path, "three", "rows of July")
    charge(path, "four", "rows of May")
    assert told(path) == [("one", 4), ("three", 0), ("four", 0)]
    with SiteStore.open(path, "A") as store:
        first, _, last = store.data_changes("p")
        assert last.after == first.before  # equal rows are equal under the key
        assert first == DataChange("one", 4, first.before, first.after)
        assert not any("rows" in value for value in (first.before, first.after))
        assert next(iter(store.spent("p").values()))[0] == 2.0  # of all four runs
        assert store.data_changes("q") == []
        store.verify("p")


def test_another_site_knows_the_same_rows_under_another_name(tmp_path: Path) -> None:
    found = []
    for name in ("a", "b"):
        charge(tmp_path / f"{name}.sqlite", "one", "rows of May")
        charge(tmp_path / f"{name}.sqlite", "two", "rows of June")
        with SiteStore.open(tmp_path / f"{name}.sqlite", "A") as store:
            found += store.data_changes("p")
    assert len({change.after for change in found}) == 2
