"""Files that cannot be used: one clear StoreError each, and a foreign file is left as it was."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from consilia.core.errors import StoreError
from consilia.core.spec import Adjacency
from consilia.dp.event import Event
from consilia.dp.ledger import Allotment
from consilia.store import faults
from consilia.store.journal import Journal
from consilia.store.ledger_store import SiteStore

EVENT = Event(1.0)


def open_site(path: Path) -> None:
    SiteStore.open(path, "A").close()


def open_journal(path: Path) -> None:
    Journal.open(path).close()


def _foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE accounts (owner TEXT)")
    connection.close()


def _text(path: Path) -> None:
    path.write_text("patient,age\n1,50\n" * 100)


def _other_kind(path: Path) -> None:
    Journal.create(path, run="A", plan_json="{}", digest="d", state=[b""]).close()


def _other_site(path: Path) -> None:
    SiteStore.open(path, "B").close()


def _version(version: int) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        SiteStore.open(path, "A").close()
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE consilia_store SET version = ?", (version,))
        connection.close()

    return make


def _before_the_key(path: Path) -> None:
    _version(1)(path)
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE site_key")
    connection.close()


def _no_header(path: Path) -> None:
    SiteStore.open(path, "A").close()
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM consilia_store")
    connection.close()


def _cut(path: Path) -> None:
    SiteStore.open(path, "A").close()
    os.truncate(path, 20_000)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_text, "needs an undamaged Consilia database; got file is not a database"),
        (_foreign, "got a database of another program"),
        (_other_kind, "needs a Consilia site file; got a file of kind journal"),
        (_other_site, "needs the file of 'A'; got the file of 'B'"),
        (_version(5), "needs tables of version 4; got version 5"),
        (_before_the_key, "needs tables of version 4; got version 1"),
        (_no_header, "got a file of kind unknown"),
        (_cut, "needs an undamaged Consilia database; got database disk image is malformed"),
        (Path.mkdir, "needs a file; got the folder"),
    ],
)
def test_a_file_that_is_not_this_sites_ledger(tmp_path: Path, make: Callable[[Path], None], message: str) -> None:
    path = tmp_path / "a.sqlite"
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(StoreError, match=message) as caught:
        open_site(path)
    assert len(caught.value.problems) == 1
    assert str(path) in str(caught.value)
    assert (path.read_bytes() if path.is_file() else b"") == before


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_text, "not a database"),
        (_foreign, "a database of another program"),
        (_other_site, "needs a Consilia journal file; got a file of kind site"),
        (Path.mkdir, "needs a file"),
        (Path.touch, "got an empty file"),
        (lambda path: None, "needs an existing file; got no file"),
    ],
)
def test_a_file_that_is_not_a_journal(tmp_path: Path, make: Callable[[Path], None], message: str) -> None:
    path = tmp_path / "j.sqlite"
    make(path)
    for read_only in (False, True):
        with pytest.raises(StoreError, match=message):
            Journal.open(path, read_only=read_only)
    assert [file for file in tmp_path.iterdir() if file != path] == []  # nothing was left beside it


def test_a_parent_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for use in (open_site, lambda path: Journal.create(path, run="r", plan_json="", digest="", state=[b""])):
        with pytest.raises(StoreError, match="folder and file that this user may read and write"):
            use(tmp_path / "file" / "a.sqlite")


def test_any_folder_name_will_do(tmp_path: Path) -> None:
    path = tmp_path / "Über uns?mode=memory&x=%20 #1" / "a;b.sqlite"
    open_site(path)
    assert path.stat().st_size > 0


def test_only_the_owner_may_read_a_ledger(tmp_path: Path) -> None:
    with SiteStore.open(tmp_path / "a.sqlite", "A") as store:
        store.seal_free("r", 1, release=b"", model_digest="", local_state=b"secret")
        for file in tmp_path.iterdir():
            assert file.stat().st_mode & 0o077 == 0


def test_a_file_that_another_process_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.sqlite"
    monkeypatch.setattr(faults, "BUSY_SECONDS", 0.05)
    with SiteStore.open(path, "A") as store:
        store.allot(
            Allotment("r", "p", ((EVENT, 5),), 1.0, 0.0, Adjacency.ADD_REMOVE, "server"), fingerprint="f", limit=None
        )
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another process that holds the file"):
            store.reserve("r", 1, "update", EVENT, reuse_open=False)
        assert store.charged("r") == []  # readers are not held up
        other.execute("ROLLBACK")
        other.close()
        store.reserve("r", 1, "update", EVENT, reuse_open=False)
        assert store.charged("r") == [(EVENT, 1)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True
    )
    if not mounted or mounted.returncode:
        pytest.skip("mounting a small tmpfs needs root")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_stops_the_run_and_loses_nothing(small_disk: Path) -> None:
    path = small_disk / "a.sqlite"
    with SiteStore.open(path, "A") as store:
        store.allot(
            Allotment("r", "p", ((EVENT, 90),), 1.0, 0.0, Adjacency.ADD_REMOVE, "server"), fingerprint="f", limit=None
        )
        hold = store.reserve("r", 1, "update", EVENT, reuse_open=False)
        store.commit(hold, release=b"first", model_digest="m", local_state=None)
        hold = store.reserve("r", 2, "update", EVENT, reuse_open=False)
        with pytest.raises(StoreError, match="needs room on the disk"):
            store.commit(hold, release=bytes(2_000_000), model_digest="m", local_state=None)
        found = store.sealed("r", 1)
        assert found is not None
        assert found.release == b"first"
        assert store.charged("r") == [(EVENT, 2)]
        store.commit(hold, release=b"second", model_digest="m", local_state=None)
    with SiteStore.open(path, "A") as store:
        store.verify("p")
        assert len(store.entries("p")) == 5


def test_a_disk_that_is_full_from_the_start(small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(bytes(1_040_000))
    with pytest.raises(StoreError, match="room on the disk"):
        open_site(small_disk / "a.sqlite")


def test_a_read_only_disk(small_disk: Path) -> None:
    site, journal = small_disk / "a.sqlite", small_disk / "j.sqlite"
    open_site(site)
    Journal.create(journal, run="r", plan_json="{}", digest="d", state=[b""]).close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for use in (
        lambda: open_site(site),
        lambda: open_site(small_disk / "new.sqlite"),
        lambda: open_journal(journal),
        lambda: Journal.create(small_disk / "k.sqlite", run="r", plan_json="", digest="", state=[b""]),
    ):
        with pytest.raises(StoreError, match="folder and file that this user may read and write") as caught:
            use()
        assert len(caught.value.problems) == 1


def test_a_read_only_folder(unprivileged: Path) -> None:
    unprivileged.chmod(0o500)
    try:
        with pytest.raises(StoreError, match="may read and write"):
            open_site(unprivileged / "a.sqlite")
    finally:
        unprivileged.chmod(0o700)


@pytest.mark.parametrize("closed", [True, False])
def test_a_journal_in_a_read_only_folder_can_be_read(unprivileged: Path, closed: bool) -> None:
    path = unprivileged / "j #1?.sqlite"
    writer = Journal.create(path, run="r", plan_json="{}", digest="d", state=[b"0"])
    writer.commit_round(1, state=[b"1"], record={"round": 1}, charges=[])
    if closed:
        writer.close()
    unprivileged.chmod(0o500)
    try:
        with Journal.open(path, read_only=True) as journal:
            assert journal.round == 1
            assert journal.records() == [{"round": 1}]
        with pytest.raises(StoreError, match="may read and write" if closed else "by one process"):
            Journal.open(path)
    finally:
        unprivileged.chmod(0o700)
        writer.close()


def test_imports_of_the_store_are_quick() -> None:
    code = (
        "import sys; import consilia.store.ledger_store, consilia.store.journal;"
        "print('torch' in sys.modules, 'dp_accounting' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_every_commit_is_forced_to_the_disk(tmp_path: Path) -> None:
    # No test can pull the plug; SQLite promises durability for exactly these settings.
    with SiteStore.open(tmp_path / "a.sqlite", "A") as store, store._engine.connect() as connection:
        for setting, value in (("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1)):
            assert connection.exec_driver_sql(f"PRAGMA {setting}").scalar() == value
