"""What a PostgreSQL server refuses: one error each that says what to do, and no password in any of them."""

import os
import shutil
import subprocess
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.store.cluster import Cluster

from consilia.core.errors import StoreError
from consilia.store import database, locks
from consilia.store.journal import Journal
from consilia.store.runs import RunQueue

SECRET = "sesame-1234"  # noqa: S105


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "GRACE_SECONDS", 0.2)
    monkeypatch.setattr(database, "RECONNECT_SECONDS", 0.2)


def name_of(url: str) -> str:
    return url.split("/")[3].partition("?")[0]


def refused(url: str) -> str:
    with pytest.raises(StoreError) as caught:
        RunQueue(url)
    assert len(caught.value.problems) == 1
    told = "".join(traceback.format_exception(caught.value))
    assert SECRET not in told
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def login(cluster: Cluster, url: str) -> Iterator[str]:
    """A user who needs a password."""
    rules = cluster.data / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text("local all secretive scram-sha-256\n" + before)
    with cluster.sql() as admin:
        admin.execute(f"CREATE ROLE secretive LOGIN PASSWORD '{SECRET}'")
        admin.execute("SELECT pg_reload_conf()")
    yield "secretive"
    rules.write_text(before)
    with cluster.sql() as admin:
        admin.execute("SELECT pg_reload_conf()")
    with cluster.sql(name_of(url)) as admin:
        admin.execute("DROP OWNED BY secretive")
        admin.execute("DROP ROLE secretive")


def test_a_wrong_password_is_not_shown(cluster: Cluster, url: str, login: str) -> None:
    name = name_of(url)
    deadline = time.monotonic() + 10
    while "a user and password" not in (told := refused(cluster.url(name, login, SECRET + "x"))):
        assert time.monotonic() < deadline  # until the server has read its rules again
    assert "password file" in told
    assert "a user and password" in refused(cluster.url(name, login))
    assert "a user and password" in refused(cluster.url(name, "nobody-of-that-name", SECRET))
    with cluster.sql(name) as admin:
        admin.execute(f"GRANT CREATE, USAGE ON SCHEMA public TO {login}")
    with RunQueue(cluster.url(name, login, SECRET)) as queue:
        assert SECRET not in repr(queue._db._engine)
        assert SECRET not in queue._db.who


def test_a_user_who_may_not_create_tables(cluster: Cluster, url: str, login: str) -> None:
    with cluster.sql(name_of(url)) as admin:
        admin.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
    assert "a user who may create and write its tables" in refused(cluster.url(name_of(url), login, SECRET))
    with cluster.sql(name_of(url)) as admin:
        admin.execute(f"GRANT USAGE ON SCHEMA public TO {login}")
    told = refused(cluster.url(name_of(url), login, SECRET))
    assert "a user who may create and write its tables" in told
    assert "Grant it CREATE" in told


def test_what_is_not_there(cluster: Cluster, tmp_path: Path) -> None:
    assert "a database that exists" in refused(cluster.url("none"))
    assert "a PostgreSQL server that answers" in refused(f"postgresql://me:{SECRET}@/db?host={tmp_path}")
    assert "a PostgreSQL server that answers" in refused(f"postgresql://me:{SECRET}@127.0.0.1:1/db")


def test_a_database_of_another_program_is_left_as_it_is(cluster: Cluster, url: str) -> None:
    with cluster.sql(name_of(url)) as admin:
        admin.execute("CREATE TABLE accounts (owner text)")
    assert "a database of another program" in refused(url)
    with pytest.raises(StoreError, match="another program"):
        Journal.create(url, run="r", plan_json="{}", digest="d", state=[b""])
    with cluster.sql(name_of(url)) as admin:
        found = admin.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
    assert found == [("accounts",)]


def test_a_store_of_a_newer_release_is_refused(cluster: Cluster, url: str) -> None:
    RunQueue(url).close()
    with cluster.sql(name_of(url)) as admin:
        admin.execute("UPDATE consilia_store SET version = 3")
    assert "needs tables of version 2; got version 3" in refused(url)


def test_tables_that_are_gone(cluster: Cluster, url: str) -> None:
    with RunQueue(url) as queue:
        with cluster.sql(name_of(url)) as admin:
            admin.execute("DROP TABLE queue")
        with pytest.raises(StoreError, match="needs its own tables"):
            queue.all()


def test_a_row_that_another_session_holds(cluster: Cluster, url: str) -> None:
    with Journal.create(url, run="r", plan_json="{}", digest="d", state=[b"0"]) as journal:
        with journal._db._engine.connect() as connection:  # of this store: its sessions wait less long here
            connection.exec_driver_sql("SET lock_timeout = '200ms'")
            connection.commit()
        with cluster.sql(name_of(url)) as admin, admin.transaction():
            admin.execute("SELECT * FROM run FOR UPDATE")
            with pytest.raises(StoreError, match="needs its turn to write"):
                journal.stage([b"1"])
            assert journal.records() == []  # readers are not held up
        journal.stage([b"1"])


@contextmanager
def standby(cluster: Cluster) -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="consilia-pg-"))
    copy = Cluster(cluster.bin, folder)
    try:
        copy.command("pg_basebackup", "-D", str(copy.data), "-h", str(cluster.folder), "-U", "postgres", "-R", "-c", "fast",
                     "-X", "stream")  # fmt: skip
        copy.start()
        try:
            yield copy
        finally:
            copy.stop()
    finally:
        shutil.rmtree(folder)


def test_a_standby_is_read_and_never_written(cluster: Cluster, url: str) -> None:
    with Journal.create(url, run="r", plan_json="{}", digest="d", state=[b"0"]), RunQueue(url) as queue:
        queue.submit("q", "{}", by="me")
        with standby(cluster) as copy:
            there = copy.url(name_of(url))
            with Journal.open(there, "r", read_only=True) as journal:
                assert journal.state == b"0"
            with RunQueue(there) as looking:
                assert [run.run for run in looking.all()] == ["q"]
                with pytest.raises(StoreError, match="needs a server that may be written"):
                    looking.submit("p", "{}", by="me")
            with pytest.raises(StoreError, match="name the primary"):
                Journal.open(there, "r")
    with cluster.sql() as admin:
        gone = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walsender'"
        deadline = time.monotonic() + 20
        while admin.execute(gone).fetchone() != (0,):
            assert time.monotonic() < deadline


@pytest.fixture
def small(cluster: Cluster, tmp_path: Path) -> Iterator[str]:
    """A database on a disk of 24 MB; the log of what is to come lies elsewhere."""
    disk = Path(tempfile.mkdtemp(prefix="consilia-disk-"))
    mounted = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=24m,mode=700,uid=postgres", "tmpfs", str(disk)], capture_output=True
        ).returncode
    )
    if not mounted:
        disk.rmdir()
        pytest.skip("mounting a small tmpfs needs root")
    name = cluster.database()
    with cluster.sql() as admin:
        admin.execute(f"CREATE TABLESPACE small LOCATION '{disk}'")
        admin.execute(f"ALTER DATABASE {name} SET TABLESPACE small")
    yield cluster.url(name)
    with cluster.sql() as admin:
        admin.execute(f"DROP DATABASE {name}")
        admin.execute("DROP TABLESPACE small")
    subprocess.run(["umount", "-l", str(disk)], check=True)
    disk.rmdir()


def test_a_full_disk_stops_the_run_and_loses_nothing(small: str) -> None:
    with Journal.create(small, run="r", plan_json="{}", digest="d", state=[b"0"]) as journal:
        journal.commit_round(1, state=[b"1"], record={"round": 1}, charges=[])
        with pytest.raises(StoreError, match="needs room on the disk"):
            journal.commit_round(2, state=[os.urandom(30_000_000)], record={"round": 2}, charges=[])
        assert (journal.round, journal.records()) == (1, [{"round": 1}])
        journal.commit_round(2, state=[b"2"], record={"round": 2}, charges=[])
    with Journal.open(small, "r") as journal:
        assert (journal.round, journal.state) == (2, b"2")


def test_damage_on_disk_is_one_error(cluster: Cluster, url: str) -> None:
    Journal.create(url, run="r", plan_json="{}", digest="d", state=[b"0"]).close()
    with cluster.sql(name_of(url)) as admin:
        admin.execute("UPDATE state SET state = '\\x00'")
    with pytest.raises(StoreError, match="got other bytes"):
        Journal.open(url, "r")
    with cluster.sql(name_of(url)) as admin:
        admin.execute("UPDATE run SET status = 'garbage'")
    with pytest.raises(StoreError, match="cannot be read"):
        Journal.open(url, "r")


def test_a_store_that_was_rolled_back_under_a_run_is_noticed(cluster: Cluster, url: str) -> None:
    with Journal.create(url, run="r", plan_json="{}", digest="d", state=[b"0"]) as journal:
        for number in (1, 2):
            journal.commit_round(number, state=[b"%d" % number], record={"round": number}, charges=[])
        with cluster.sql(name_of(url)) as admin:  # as after a change to a standby that lagged behind
            admin.execute("UPDATE run SET round = 1")
            admin.execute("DELETE FROM records WHERE round = 2")
        with pytest.raises(StoreError, match="at round 2, where it was left; got round 1"):
            journal.commit_round(3, state=[b"3"], record={"round": 3}, charges=[])
