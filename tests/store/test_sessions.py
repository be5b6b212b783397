"""Identity, sums under way and signed entries, in the site's own file."""

import sqlite3
from pathlib import Path

import pytest

from consilia.core.errors import StoreError
from consilia.store.ledger_store import SiteStore

ONE, TWO, THREE = b"session-of-16-by" + b"1", b"session-of-16-by" + b"2", b"another-of-16-by" + b"3"


def test_an_identity_is_made_once(tmp_path: Path) -> None:
    with SiteStore.open(tmp_path / "a.sqlite", "A") as store:
        assert store.sessions.identity(b"first") == b"first"
    with SiteStore.open(tmp_path / "a.sqlite", "A") as store:
        assert store.sessions.identity(b"second") == b"first"


def test_a_sum_stands_where_it_was_left_and_never_goes_back(tmp_path: Path) -> None:
    with SiteStore.open(tmp_path / "a.sqlite", "A") as store:
        assert store.sessions.state("run", "update", 1) is None
        store.sessions.keep("run", "update", 1, ONE)
        store.sessions.keep("run", "update", 1, TWO)
    with SiteStore.open(tmp_path / "a.sqlite", "A") as store:
        assert store.sessions.state("run", "update", 1) == TWO
        assert store.sessions.state("run", "update", 2) is None
        assert store.sessions.state("run", "evaluation", 1) is None
        store.sessions.keep("run", "update", 2, THREE)
        with pytest.raises(StoreError, match="A round is summed once"):
            store.sessions.state("run", "update", 1)


def test_a_round_stands_in_one_session_and_rounds_go_forward(tmp_path: Path) -> None:
    with SiteStore.open(tmp_path / "a.sqlite", "A") as store:
        store.sessions.keep("run", "update", 2, ONE)
        for number, state in ((2, THREE), (1, ONE)):
            with pytest.raises(StoreError, match="one session for round"):
                store.sessions.keep("run", "update", number, state)


def test_secrets_go_when_a_run_ends_and_what_was_summed_stays(tmp_path: Path) -> None:
    with SiteStore.open(tmp_path / "a.sqlite", "A") as store:
        store.sessions.keep("run", "update", 2, ONE)
        store.sessions.forget("run")
        assert store.sessions.state("run", "update", 2) == ONE[:16]
        with pytest.raises(StoreError, match="one session for round"):
            store.sessions.keep("run", "update", 2, THREE)


def test_a_changed_state_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with SiteStore.open(path, "A") as store:
        store.sessions.keep("run", "update", 1, ONE)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE sessions SET state = ?", (b"other",))
    connection.close()
    with SiteStore.open(path, "A") as store, pytest.raises(StoreError, match="other bytes"):
        store.sessions.state("run", "update", 1)


def test_the_first_entry_of_a_round_stands(tmp_path: Path) -> None:
    with SiteStore.open(tmp_path / "a.sqlite", "A") as store:
        store.sessions.note("run", 2, b"b")
        store.sessions.note("run", 1, b"a")
        store.sessions.note("run", 1, b"forged")
        assert store.sessions.transcript("run") == [b"a", b"b"]


def test_a_file_of_the_version_before_gets_the_tables_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    SiteStore.open(path, "A").close()
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE sessions")
        connection.execute("DROP TABLE transcripts")
        connection.execute("UPDATE consilia_store SET version = 2")
    connection.close()
    for _ in range(2):
        with SiteStore.open(path, "A") as store:
            store.sessions.keep("run", "update", 1, ONE)
            assert store.sessions.state("run", "update", 1) == ONE
