"""An update that waits at a site: one a run, gone with the release made of it, and found again whole or not at all."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from consilia.core.errors import StoreError
from consilia.core.spec import Adjacency
from consilia.dp.event import Event
from consilia.dp.ledger import Allotment
from consilia.store.ledger_store import SiteStore
from consilia.store.prepared import PreparedUpdate
from consilia.store.tables import prepared

EVENT = Event(1.0)
ALLOTMENT = Allotment("run", "people", ((EVENT, 3),), 1.0, 1e-5, Adjacency.ADD_REMOVE, "server")
WAITS = PreparedUpdate(2, 1, "m" * 64, None, None, b"an update")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SiteStore]:
    with SiteStore.open(tmp_path / "site.sqlite", "A") as opened:
        yield opened


def test_one_waits_a_run_and_outlives_the_process(store: SiteStore, tmp_path: Path) -> None:
    assert store.preparations.found("run") is None
    store.preparations.keep("run", PreparedUpdate(1, 0, "k" * 64, 4, "h" * 64, b"older"))
    store.preparations.keep("run", WAITS)
    store.preparations.keep("other", PreparedUpdate(9, 9, "o" * 64, None, None, b"another run's"))
    with SiteStore.open(tmp_path / "site.sqlite", "A") as again:
        assert again.preparations.found("run") == WAITS
    store.preparations.drop("run")
    store.preparations.drop("run")
    assert store.preparations.found("run") is None
    assert store.preparations.found("other") is not None


def test_what_is_sealed_waits_no_longer_and_scores_touch_nothing(store: SiteStore) -> None:
    store.allot(ALLOTMENT, fingerprint="f", limit=None)
    for purpose, left in (("evaluation", True), ("update", False)):
        hold = store.reserve("run", 1, purpose, EVENT, reuse_open=False)  # type: ignore[arg-type]
        store.preparations.keep("run", WAITS)
        store.commit(hold, release=b"sealed", model_digest="m" * 64, local_state=None, round=5)
        assert (store.preparations.found("run") is not None) is left
    assert store.newest_round("run", "update") == 5  # charged for round 1, released in round 5
    assert store.sealed("run", 5) is not None
    assert store.sealed("run", 1) is None
    store.verify("people")


def test_a_run_without_a_charge_and_a_run_that_is_forgotten(store: SiteStore) -> None:
    store.preparations.keep("free", WAITS)
    store.seal_free("free", 3, release=b"sealed", model_digest="m" * 64, local_state=None)
    assert store.preparations.found("free") is None
    store.preparations.keep("free", WAITS)
    store.forget("free")
    assert store.preparations.found("free") is None


def test_bytes_that_changed_on_disk_are_not_released(store: SiteStore) -> None:
    store.preparations.keep("run", WAITS)
    with store._engine.begin() as connection:
        connection.execute(update(prepared).values(state=b"another"))
    with pytest.raises(StoreError, match="as it was stored; got other bytes"):
        store.preparations.found("run")
