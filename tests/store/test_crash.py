"""Kill -9 at every crash point: what is on disk is never less than what was released, and the run goes on."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import consilia.store
from consilia.core.errors import StoreError
from consilia.store import crash
from consilia.store.journal import Journal
from consilia.store.ledger_store import SiteStore

WORKER = Path(__file__).with_name("crash_worker.py")
_EACH = ("before", "written", "committed")
_ONCE = [
    f"{name}.{where}:1"
    for name in ("store.create", "ledger.allot", "ledger.limit", "journal.create")
    for where in _EACH
]
_ENDS = [f"{name}.{where}:1" for name in ("journal.finish", "ledger.close") for where in _EACH]
_ROUND = [f"{name}.{where}:2" for name in ("ledger.reserve", "ledger.commit") for where in _EACH]
_ROUND += ["ledger.commit.charged:2"]
_JOURNAL = [f"journal.commit.{where}:2" for where in _EACH]
ELSEWHERE = (
    "queue.submit", "queue.take", "queue.renew", "queue.leave", "queue.end", "queue.stop", "journal.export",
    "inbox.begin", "inbox.keep", "consent.note", "consent.close", "consent.approve", "consent.withdraw",
)  # fmt: skip
_FREE = [f"ledger.seal.{where}:2" for where in _EACH]
CASES = [
    *((place, "private") for place in _ONCE + _ENDS + _ROUND + _JOURNAL),
    *((place, "reproducible") for place in _ROUND),
    *((place, "free") for place in _FREE),
]


@pytest.fixture(scope="module")
def worker() -> ModuleType:
    import importlib.util

    spec = importlib.util.spec_from_file_location("crash_worker", WORKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(folder: Path, mode: str, place: str = "") -> int:
    environment = {**os.environ, crash.SETTING: place}
    return subprocess.run([sys.executable, str(WORKER), str(folder), mode], env=environment).returncode


def log(folder: Path, name: str) -> list[tuple[int, bytes]]:
    path = folder / name
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(line.split()[0]), bytes.fromhex(line.split()[1])) for line in lines]


def charged(store: SiteStore) -> int:
    return sum(count for _, count in store.charged("run"))


def check_after_kill(folder: Path, mode: str, worker: ModuleType) -> None:
    sent, computed = log(folder, "sent"), log(folder, "computed")
    with SiteStore.open(folder / "site.sqlite", "A") as store:
        store.verify(worker.POPULATION)
        assert charged(store) >= len(computed)  # also those that were never committed
        if mode != "free":
            assert charged(store) >= len({round for round, _ in sent})
            if worker.POPULATION in store.populations():
                assert list(store.spent(worker.POPULATION).values()) == [(1.0, 1e-5)]
        closed = any(entry.kind == "close" for entry in store.entries(worker.POPULATION))
        if closed:
            with pytest.raises(StoreError, match="closed as 'done'"):
                store.sealed("run", worker.ROUNDS)
        elif sent:
            round, release = sent[-1]
            newest = store.sealed("run", round + 1)
            found = store.sealed("run", round)
            assert newest is not None or (found is not None and found.release == release)
            assert store.local_state("run", round) == worker.local_state(round)
        for entry in store.entries(worker.POPULATION):
            if entry.kind == "commit" and entry.round > len(sent):
                pending = store.sealed("run", entry.round)
                assert pending is not None
                assert (entry.round, pending.release) == computed[-1]
    path = folder / "journal.sqlite"
    if not path.exists() or path.stat().st_size == 0:
        return
    with sqlite3.connect(path) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE name = 'run'").fetchall()
        begun = bool(tables) and connection.execute("SELECT run FROM run").fetchall()
    connection.close()
    if not begun:  # killed between the empty file and the run's first transaction
        with pytest.raises(StoreError, match="was killed before"):
            Journal.open(path)
        assert not sent
        path.unlink()
        return
    with Journal.open(path) as journal:
        rounds = dict(sent)
        assert journal.round in (len(rounds), len(rounds) - 1)
        assert [record["round"] for record in journal.records()] == list(range(1, journal.round + 1))
        state = worker.START
        for round in range(1, journal.round + 1):
            state = worker.after(state, rounds[round])
        assert journal.state == state
        if mode != "free":
            assert len(journal.charges()) == journal.round
            if journal.round:
                with SiteStore.open(folder / "site.sqlite", "A") as store:
                    store.verify(worker.POPULATION, journal.heads()["A"])


@pytest.mark.parametrize(("place", "mode"), CASES)
def test_after_a_kill_nothing_is_lost_and_the_run_goes_on(
    tmp_path: Path, worker: ModuleType, place: str, mode: str
) -> None:
    assert run(tmp_path, mode, place) == -signal.SIGKILL
    check_after_kill(tmp_path, mode, worker)
    assert run(tmp_path, mode) == 0

    sent = log(tmp_path, "sent")
    for round in range(1, worker.ROUNDS + 1):
        assert len({release for number, release in sent if number == round}) == 1  # a resend sends the same bytes
    with Journal.open(tmp_path / "journal.sqlite") as journal:
        assert (journal.status, journal.round) == ("done", worker.ROUNDS)
        state = worker.START
        for round in range(1, worker.ROUNDS + 1):
            state = worker.after(state, dict(sent)[round])
        assert journal.state == state
    with SiteStore.open(tmp_path / "site.sqlite", "A") as store:
        # A hold that was on disk when the process died stays spent, unless the same bytes could be computed again.
        held = place in ("ledger.reserve.committed:2", "ledger.commit.before:2", "ledger.commit.charged:2",
                         "ledger.commit.written:2")  # fmt: skip
        expected = {"private": worker.ROUNDS + held, "reproducible": worker.ROUNDS, "free": 0}[mode]
        assert charged(store) == expected
        assert list(store.spent(worker.POPULATION).values()) == ([] if mode == "free" else [(1.0, 1e-5)])


@pytest.mark.parametrize("where", _EACH)
def test_a_second_kill_while_a_run_is_taken_up_again(tmp_path: Path, worker: ModuleType, where: str) -> None:
    assert run(tmp_path, "private", "journal.commit.committed:2") == -signal.SIGKILL
    assert run(tmp_path, "private", f"journal.claim.{where}:1") == -signal.SIGKILL
    check_after_kill(tmp_path, "private", worker)
    assert run(tmp_path, "private") == 0
    with Journal.open(tmp_path / "journal.sqlite") as journal:
        assert (journal.status, journal.round) == ("done", worker.ROUNDS)


def test_every_crash_point_of_the_store_is_killed_at() -> None:
    source = "".join(path.read_text() for path in Path(next(iter(consilia.store.__path__))).glob("*.py"))
    names = {f"{name}.{where}" for name in re.findall(r'writing\([^()]*"([a-z.]+)"\)', source) for where in _EACH}
    names |= {f"{name}.{where}" for name in re.findall(r'\.write\(\s*"([a-z.]+)"', source) for where in _EACH}
    names |= set(re.findall(r'crash_point\("([a-z.]+)"\)', source))
    elsewhere = {
        f"journal.stage.{where}" for where in _EACH
    }  # tests/rounds/test_kill.py, where there is something to stage
    elsewhere |= {f"journal.claim.{where}" for where in _EACH}  # below: only a run that is resumed is claimed
    elsewhere |= {f"ledger.forget.{where}" for where in _EACH}  # tests/study/test_kill.py, where a trial was beaten
    # tests/rounds/test_secure_kill.py, where sites sum in secret
    elsewhere |= {
        f"{name}.{where}"
        for name in ("identity", "session.begun", "session.keep", "session.forget", "transcript.note")
        for where in _EACH
    }
    # tests/store/test_runs_crash.py and test_site_crash.py
    elsewhere |= {f"{name}.{where}" for name in ELSEWHERE for where in _EACH}
    # tests/rounds/asynchronous/test_kill.py, where updates wait
    elsewhere |= {f"{name}.{where}" for name in ("prepared.keep", "prepared.drop") for where in _EACH}
    assert names == {place.partition(":")[0] for place, _ in CASES} | elsewhere


def test_a_place_that_is_not_named_does_nothing() -> None:
    crash.crash_point("anything")


@pytest.mark.parametrize("setting", ["place:0", "place:x", "place:-1", "place:"])
def test_a_setting_that_cannot_be_read_is_refused(setting: str) -> None:
    with pytest.raises(StoreError, match="k >= 1"):
        crash._read(setting)
