"""A ledger that was changed on disk is found out: by its chain, by the hash beside an entry, or by a head kept elsewhere."""

import contextlib
import json
import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from consilia.core.canonical import digest
from consilia.core.errors import StoreError
from consilia.core.spec import Adjacency
from consilia.dp.event import Event
from consilia.dp.ledger import Allotment
from consilia.store.journal import Journal
from consilia.store.ledger_store import SiteStore

EVENT = Event(1.0, 0.01, 10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.sqlite"
    with SiteStore.open(path, "A") as store:
        for population in ("p", "q"):
            run = f"r-{population}"
            store.allot(
                Allotment(run, population, ((EVENT, 9),), 1.0, 1e-5, Adjacency.ADD_REMOVE, "server"),
                fingerprint="f",
                limit=None,
            )
            for round in (1, 2):
                hold = store.reserve(run, round, "update", EVENT, reuse_open=False)
                store.commit(hold, release=b"release", model_digest="m", local_state=b"state")
    return path


@pytest.fixture
def forge(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, isolation_level=None)
    yield connection
    connection.close()


def every_use() -> list[Callable[[SiteStore], object]]:
    return [
        lambda store: store.verify("p"),
        lambda store: store.spent("p"),
        lambda store: store.reserve("r-p", 3, "update", EVENT, reuse_open=False),
        lambda store: store.allot(
            Allotment("new", "p", ((EVENT, 1),), 0.1, 0.0, Adjacency.ADD_REMOVE, "server"), fingerprint="f", limit=None
        ),
    ]


def assert_refused(path: Path, match: str) -> None:
    for use in every_use():
        with SiteStore.open(path, "A") as store, pytest.raises(StoreError, match=match):
            use(store)


def test_an_untouched_ledger_is_whole(path: Path) -> None:
    with SiteStore.open(path, "A") as store:
        assert store.verify("p") == store.head("p")


@pytest.mark.parametrize("position", [0, 2, 4])
def test_any_changed_byte_of_a_body_is_found(path: Path, forge: sqlite3.Connection, position: int) -> None:
    where = "WHERE population = 'p' AND position = ?"
    (body,) = forge.execute(f"SELECT body FROM entries {where}", (position,)).fetchone()  # noqa: S608
    with SiteStore.open(path, "A") as store:
        for place in range(len(body)):
            for bit in (1, 32):  # 32 turns "e" of a float's exponent into "E": the same number, other bytes
                changed = body[:place] + chr(ord(body[place]) ^ bit) + body[place + 1 :]
                forge.execute(f"UPDATE entries SET body = ? {where}", (changed, position))  # noqa: S608
                with pytest.raises(StoreError, match=f"entry {position}"):
                    store.verify("p")
        forge.execute(f"UPDATE entries SET body = ? {where}", (body, position))  # noqa: S608
        store.verify("p")


@pytest.mark.parametrize(
    "change",
    ["kind = 'close'", "run = 'r-q'", "round = 7", "previous = hash", "hash = previous", "kind = 'refund'",
     "body = '{}'", "body = '['", "round = 'x'"],
)  # fmt: skip
def test_any_changed_column_is_found(path: Path, forge: sqlite3.Connection, change: str) -> None:
    forge.execute(f"UPDATE entries SET {change} WHERE population = 'p' AND position = 4")  # noqa: S608
    assert_refused(path, "ledger")


@pytest.mark.parametrize("position", [0, 1, 2, 3])
def test_a_deleted_row_is_found(path: Path, forge: sqlite3.Connection, position: int) -> None:
    forge.execute("DELETE FROM entries WHERE population = 'p' AND position = ?", (position,))
    for use in every_use():
        # Without its allotment a run cannot even ask for a charge.
        with (
            SiteStore.open(path, "A") as store,
            pytest.raises(StoreError, match=rf"entry {position}|needs an allotment"),
        ):
            use(store)


def test_a_deleted_row_whose_gap_was_closed_is_found(path: Path, forge: sqlite3.Connection) -> None:
    forge.execute("DELETE FROM entries WHERE population = 'p' AND position = 1")
    for position in (2, 3, 4):
        forge.execute(
            "UPDATE entries SET position = ? WHERE population = 'p' AND position = ?", (position - 1, position)
        )
    assert_refused(path, "entry 1")


def test_reordered_rows_are_found(path: Path, forge: sqlite3.Connection) -> None:
    for old, new in ((1, 99), (3, 1), (99, 3)):
        forge.execute("UPDATE entries SET position = ? WHERE population = 'p' AND position = ?", (new, old))
    assert_refused(path, "entry 1")


def test_a_row_of_another_population_is_found(path: Path, forge: sqlite3.Connection) -> None:
    forge.execute("DELETE FROM entries WHERE population = 'p' AND position = 4")
    forge.execute("UPDATE entries SET population = 'p' WHERE population = 'q' AND position = 4")
    assert_refused(path, "entry 4")


def test_a_cut_tail_is_found_with_a_head_kept_elsewhere(path: Path, forge: sqlite3.Connection) -> None:
    with SiteStore.open(path, "A") as store:
        known, early = store.head("p"), store.entries("p")[2].hash
        assert store.verify("p", early) == known  # an older copy of the head is still on the chain
    forge.execute("DELETE FROM entries WHERE population = 'p' AND position > 2")
    with SiteStore.open(path, "A") as store:
        store.verify("p")  # whole in itself: that is why the head is kept elsewhere
        with pytest.raises(StoreError, match=f"known head {known[:12]}"):
            store.verify("p", known)
    forge.execute("DELETE FROM entries WHERE population = 'p'")
    with SiteStore.open(path, "A") as store, pytest.raises(StoreError, match="got 0 entries"):
        store.verify("p", known)


def test_a_forger_who_hashes_again_is_found_with_a_head_kept_elsewhere(path: Path, forge: sqlite3.Connection) -> None:
    with SiteStore.open(path, "A") as store:
        known, last = store.head("p"), store.entries("p")[-1]
    body = {**last.body, "model": "other"}
    forged = digest({**last.to_json(), "body": body})
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    forge.execute("UPDATE entries SET body = ?, hash = ? WHERE population = 'p' AND position = 4", (text, forged))
    with SiteStore.open(path, "A") as store:
        assert store.verify("p") == forged
        with pytest.raises(StoreError, match="known head"):
            store.verify("p", known)


def test_a_chain_cut_under_a_running_process_stops_it(path: Path, forge: sqlite3.Connection) -> None:
    with SiteStore.open(path, "A") as store:
        store.head("p")
        forge.execute("DELETE FROM entries WHERE population = 'p' AND position > 2")
        with pytest.raises(StoreError, match="cut or replaced while this process ran"):
            store.reserve("r-p", 3, "update", EVENT, reuse_open=False)


def test_changed_bytes_of_a_sealed_release_are_never_sent(path: Path, forge: sqlite3.Connection) -> None:
    forge.execute("UPDATE sealed SET release = x'00'")
    with SiteStore.open(path, "A") as store, pytest.raises(StoreError, match="bytes changed on disk"):
        store.sealed("r-p", 2)


@pytest.mark.parametrize("position", ["NULL", "0", "2", "3"])
def test_a_sealed_release_needs_its_commit_in_the_chain(path: Path, forge: sqlite3.Connection, position: str) -> None:
    forge.execute(f"UPDATE sealed SET position = {position}")  # noqa: S608
    with SiteStore.open(path, "A") as store, pytest.raises(StoreError, match="none in the chain"):
        store.sealed("r-p", 2)


def test_a_sealed_release_is_checked_under_the_key_of_its_file(path: Path, forge: sqlite3.Connection) -> None:
    for change in ("UPDATE site_key SET key = x'00'", "DELETE FROM site_key"):
        forge.execute(change)
        with SiteStore.open(path, "A") as store, pytest.raises(StoreError, match="none in the chain"):
            store.sealed("r-p", 2)


def test_a_release_whose_whole_chain_is_gone_is_not_sent(path: Path, forge: sqlite3.Connection) -> None:
    forge.execute("DELETE FROM entries")
    with SiteStore.open(path, "A") as store, pytest.raises(StoreError, match="none in the chain"):
        store.sealed("r-p", 2)


def test_changed_local_state_is_found(path: Path, forge: sqlite3.Connection) -> None:
    forge.execute("UPDATE local_states SET state = x'00'")
    with SiteStore.open(path, "A") as store, pytest.raises(StoreError, match="local state of run 'r-p'"):
        store.local_state("r-p", 2)


def test_a_changed_model_in_the_journal_is_found(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    Journal.create(path, run="r", plan_json="{}", digest="d", state=[b"s"]).close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE state SET state = x'00'")
    connection.close()
    with pytest.raises(StoreError, match="got other bytes"):
        Journal.open(path)


NESTED = "[" * 100_000
OTHER_VALUES = [
    ("run", "result", "garbage"), ("run", "result", "5"), ("run", "result", NESTED), ("run", "run", b"\xff"),
    ("run", "plan", b"\xff"), ("run", "status", "garbage"),
    ("run", "round", "garbage"), ("state", "state", "garbage"), ("state", "digest", b"\xff"),
    ("records", "record", "garbage"), ("records", "record", "[]"), ("records", "record", NESTED),
    ("records", "record", b"\xff"), ("records", "charges", "garbage"), ("records", "charges", "[{}]"),
    ("records", "charges", "{}"), ("records", "charges", NESTED), ("records", "charges", '[{"site": "A", "head": 5}]'),
]  # fmt: skip


@pytest.mark.parametrize(("table", "column", "value"), OTHER_VALUES)
def test_a_journal_of_other_values_is_one_error(tmp_path: Path, table: str, column: str, value: object) -> None:
    path = tmp_path / "j.sqlite"
    with Journal.create(path, run="r", plan_json="{}", digest="d", state=[b"s"]) as journal:
        journal.commit_round(1, state=[b"t"], record={"round": 1}, charges=[{"site": "A", "head": "h"}])
        journal.finish("done", None, {})
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE {table} SET {column} = ?", (value,))  # noqa: S608
    connection.close()

    def read() -> None:
        with Journal.open(path, read_only=True) as journal:
            journal.records()
            journal.heads()

    with pytest.raises(StoreError) as caught:
        read()
    assert len(caught.value.problems) == 1


def _flips(path: Path, seed: int) -> Iterator[bytes]:
    whole, rng = path.read_bytes(), random.Random(seed)
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(rng.choice((1, 8, 60))):
            place = rng.randrange(rng.choice((200, len(damaged))))  # the header and what follows it, or anywhere
            damaged[place] ^= 1 << rng.randrange(8)
        yield bytes(damaged)


def test_flipped_bits_of_a_ledger_are_an_error_or_harmless(path: Path, tmp_path: Path) -> None:
    for number, damaged in enumerate(_flips(path, 1)):
        copy = tmp_path / f"{number}.sqlite"
        copy.write_bytes(damaged)
        with contextlib.suppress(StoreError), SiteStore.open(copy, "A") as store:
            for population in store.populations():
                store.verify(population)
                store.spent(population)
                store.limit(population)


def test_flipped_bits_of_a_journal_are_an_error_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    with Journal.create(path, run="r", plan_json='{"plan": {}}', digest="d", state=[b"state" * 9]) as journal:
        for round in (1, 2, 3):
            journal.commit_round(
                round, state=[b"t" * 20], record={"round": round}, charges=[{"site": "A", "head": "h" * 64}]
            )
    for number, damaged in enumerate(_flips(path, 2)):
        copy = tmp_path / f"{number}.sqlite"
        copy.write_bytes(damaged)
        with contextlib.suppress(StoreError), Journal.open(copy) as journal:
            journal.records()
            journal.heads()
