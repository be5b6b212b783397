"""Stores of older releases are brought to the present tables; those of newer ones and of others are left as they are."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, create_engine, inspect

from consilia.core.canonical import digest_bytes
from consilia.core.errors import StoreError
from consilia.store.journal import Journal
from consilia.store.journal_tables import JOURNAL_VERSION, journal_metadata, revision
from consilia.store.migrations import migrate
from consilia.store.runs import RunQueue

# What a file of the first release holds, statement by statement as SQLite keeps it.
V1 = """
CREATE TABLE consilia_store (kind VARCHAR(16) NOT NULL, version INTEGER NOT NULL, name TEXT NOT NULL, PRIMARY KEY (kind));
CREATE TABLE run (run TEXT NOT NULL, "plan" TEXT NOT NULL, digest VARCHAR(64) NOT NULL, status VARCHAR(16) NOT NULL,
  reason TEXT, round BIGINT NOT NULL, result TEXT, PRIMARY KEY (run));
CREATE TABLE records (round BIGINT NOT NULL, record TEXT NOT NULL, charges TEXT NOT NULL, PRIMARY KEY (round));
CREATE TABLE state (run TEXT NOT NULL, digest VARCHAR(64) NOT NULL, state BLOB NOT NULL, PRIMARY KEY (run),
  FOREIGN KEY(run) REFERENCES run (run));
INSERT INTO consilia_store VALUES ('journal', 1, 'r');
INSERT INTO run VALUES ('r', '{"a":1}', 'd', 'running', NULL, 2, NULL);
INSERT INTO records VALUES (1, '{"round":1}', '[{"head":"h1","site":"A"}]'), (2, '{"round":2}', '[{"head":"h2","site":"A"}]');
"""


def old(path: Path) -> Path:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA page_size = 16384")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(V1)
    connection.execute("INSERT INTO state VALUES ('r', ?, ?)", (digest_bytes(b"two"), b"two"))
    connection.commit()
    connection.close()
    return path


def holds(journal: Journal) -> None:
    assert (journal.run, journal.plan_json, journal.digest, journal.status) == ("r", '{"a":1}', "d", "running")
    assert (journal.round, journal.state, journal.heads()) == (2, b"two", {"A": "h2"})
    assert journal.records() == [{"round": 1}, {"round": 2}]


def test_a_file_of_the_first_release_goes_on(tmp_path: Path) -> None:
    path = old(tmp_path / "j.sqlite")
    with Journal.open(path) as journal:
        holds(journal)
        journal.commit_round(3, state=[b"three"], record={"round": 3}, charges=[])
    with Journal.open(path) as journal:
        assert (journal.round, journal.state, len(journal.records())) == (3, b"three", 3)
    with pytest.raises(StoreError, match="a path without a run"):
        Journal.create(path, run="r", plan_json="", digest="", state=[b""])


def test_an_old_file_that_is_only_read_is_left_as_it_is(tmp_path: Path) -> None:
    path = old(tmp_path / "j.sqlite")
    before = path.read_bytes()
    with Journal.open(path, read_only=True) as journal:
        holds(journal)
    assert path.read_bytes() == before


def test_an_old_file_that_an_old_process_runs_is_left_as_it_is(tmp_path: Path) -> None:
    path = old(tmp_path / "j.sqlite")
    before = path.read_bytes()
    other = sqlite3.connect(f"{path}.lock", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match="another process that runs it now"):
        Journal.open(path)
    other.close()
    assert path.read_bytes() == before


def test_an_upgrade_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = old(tmp_path / "j.sqlite")
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE queue (own TEXT)")  # in the way of the last step
    connection.close()
    with pytest.raises(StoreError, match="already exists"):
        Journal.open(path)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT version FROM consilia_store").fetchone() == (1,)
        assert [column[1] for column in connection.execute("PRAGMA table_info(records)")] == [
            "round",
            "record",
            "charges",
        ]
        connection.execute("DROP TABLE queue")
    connection.close()
    with Journal.open(path) as journal:
        holds(journal)


def test_a_file_of_a_newer_release_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    Journal.create(path, run="r", plan_json="{}", digest="d", state=[b"0"]).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE consilia_store SET version = 3")
    connection.close()
    before = path.read_bytes()
    for read_only in (True, False):
        with pytest.raises(StoreError, match="needs tables of version 2; got version 3"):
            Journal.open(path, read_only=read_only)
    assert path.read_bytes() == before


def _shape(connection: Connection) -> dict[str, object]:
    found = inspect(connection)
    shape: dict[str, object] = {}
    for table in sorted(found.get_table_names()):
        columns = [(c["name"], str(c["type"]), c["nullable"], c["default"]) for c in found.get_columns(table)]
        keys = [found.get_pk_constraint(table)["constrained_columns"]]
        keys += [key["constrained_columns"] for key in found.get_foreign_keys(table)]
        keys += [key["column_names"] for key in found.get_unique_constraints(table)]
        shape[table] = (columns, keys)
        if connection.dialect.name == "postgresql":
            shape[f"{table}, stored"] = connection.exec_driver_sql(
                f"SELECT attname, attstorage FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attnum > 0 ORDER BY 1"  # noqa: S608
            ).fetchall()
    return shape


def test_the_steps_lead_to_the_tables_of_a_new_store(many: str) -> None:
    RunQueue(many).close()
    engine = create_engine(many.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        new = _shape(connection)
        journal_metadata.drop_all(connection)
    with engine.begin() as connection:
        migrate(connection, 0)
        assert _shape(connection) == new
        context = MigrationContext.configure(connection, opts={"version_table": revision.name, "compare_type": True})
        # Alembic does not count the table in which it counts.
        differences = compare_metadata(context, journal_metadata)
        assert [one for one in differences if revision.name not in str(one)] == []
        assert context.get_current_heads() == (str(JOURNAL_VERSION),)
    engine.dispose()


def test_a_new_store_is_made_without_alembic(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from consilia.store.journal import Journal
path = Path({str(tmp_path)!r}) / "j.sqlite"
Journal.create(path, run="r", plan_json="", digest="", state=[b""]).close()
Journal.open(path).close()
print([name for name in ("alembic", "psycopg", "torch") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]"]
