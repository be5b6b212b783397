"""The coordinator's journal: round by round, one process, one terminal state; in a file, a shared file or a server."""

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from consilia.core.canonical import Json
from consilia.core.errors import StoreError
from consilia.store import locks
from consilia.store.journal import Journal

Place = Path | str


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "GRACE_SECONDS", 0.2)


def create(place: Place) -> Journal:
    return Journal.create(place, run="r", plan_json='{"a":1}', digest="d", state=[b"0"])


def again(place: Place, *, read_only: bool = False) -> Journal:
    return Journal.open(place, None if isinstance(place, Path) else "r", read_only=read_only)


def commit(journal: Journal, round: int) -> None:
    record: dict[str, Json] = {"round": round, "accuracy": 0.5}
    charge: dict[str, Json] = {"site": "A", "head": f"h{round}", "count": round}
    journal.commit_round(round, state=[b"%d" % round], record=record, charges=[charge])


def test_what_was_committed_is_found_again(place: Place) -> None:
    with create(place) as journal:
        assert (journal.round, journal.state, journal.status) == (0, b"0", "running")
        for round in (1, 2):
            commit(journal, round)
    with again(place) as journal:
        assert (journal.run, journal.plan_json, journal.digest) == ("r", '{"a":1}', "d")
        assert (journal.round, journal.state, journal.status, journal.result) == (2, b"2", "running", None)
        assert [record["round"] for record in journal.records()] == [1, 2]
        assert [charge["count"] for charge in journal.charges()] == [1, 2]
        assert journal.heads() == {"A": "h2"}
        commit(journal, 3)
        journal.finish("stopped", "patience", {"accuracy": 0.5})
    with again(place) as journal:
        assert (journal.status, journal.reason, journal.round) == ("stopped", "patience", 3)
        assert journal.result == {"accuracy": 0.5}


def test_a_site_that_said_nothing_keeps_its_last_known_head(place: Place) -> None:
    with create(place) as journal:
        commit(journal, 1)
        journal.commit_round(2, state=[b"2"], record={}, charges=[{"site": "A", "head": ""}, {"site": "B", "head": ""}])
        assert journal.heads() == {"A": "h1"}


@pytest.mark.parametrize("round", [0, 1, 3])
def test_rounds_are_committed_once_and_in_turn(place: Place, round: int) -> None:
    with create(place) as journal:
        commit(journal, 1)
        with pytest.raises(StoreError, match="needs round 2 next"):
            commit(journal, round)
        commit(journal, 2)
        assert [record["round"] for record in journal.records()] == [1, 2]


def test_a_round_that_cannot_be_recorded_changes_nothing(place: Place) -> None:
    with create(place) as journal:
        with pytest.raises(ValueError, match="JSON compliant"):
            journal.commit_round(1, state=[b"1"], record={"loss": float("nan")}, charges=[])
        assert (journal.round, journal.state) == (0, b"0")
        commit(journal, 1)


def test_an_ended_run_stays_ended(place: Place) -> None:
    with create(place) as journal:
        journal.finish("failed", "quorum", {})
    with again(place) as journal:
        with pytest.raises(StoreError, match="a run that is failed"):
            commit(journal, 1)
        with pytest.raises(StoreError, match="a run that is failed"):
            journal.finish("done", None, {})


def test_running_is_not_an_end(place: Place) -> None:
    with create(place) as journal, pytest.raises(StoreError, match="done, stopped or failed"):
        journal.finish("running", None, {})


def test_a_run_is_created_once(place: Place) -> None:
    create(place).close()
    with pytest.raises(StoreError, match="a path without a run"):
        create(place)
    again(place).close()  # the refusal let go of the lock


def test_two_processes_cannot_run_one_run(place: Place) -> None:
    with create(place) as journal:
        with pytest.raises(StoreError, match="another process that runs it now"):
            again(place)
        code = f"""
from pathlib import Path, PosixPath
from consilia.core.errors import StoreError
from consilia.store.journal import Journal
try:
    Journal.open({place!r}, None if isinstance({place!r}, Path) else 'r')
except StoreError as error:
    raise SystemExit(str(error))
"""
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "another process that runs it now" in other.stderr
        commit(journal, 1)
    again(place).close()


def test_a_report_reads_while_the_run_goes_on(place: Place) -> None:
    with create(place) as journal:
        commit(journal, 1)
        with again(place, read_only=True) as view:
            assert (view.round, view.state) == (1, b"1")
            with pytest.raises(StoreError, match="opened to read"):
                commit(view, 2)
            commit(journal, 2)
            assert len(view.records()) == 2
        with pytest.raises(StoreError, match="another process"):  # closing the view kept the lock
            again(place)


def test_only_the_newest_state_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"

    def size() -> int:
        return sum(file.stat().st_size for file in path.parent.iterdir())

    with create(path) as journal:
        sizes = []
        for round in range(1, 31):
            journal.commit_round(round, state=[bytes([round]) * 400_000], record={"round": round}, charges=[])
            sizes.append(size())
    # One state in the database and the write-ahead log, which is emptied at 1000 pages of 16 kB.
    assert path.stat().st_size < 700_000
    assert max(sizes) < 20_000_000


def test_runs_of_one_store_do_not_meet(many: str) -> None:
    Journal.create(many, run="q", plan_json="{}", digest="", state=[b""]).close()
    with pytest.raises(StoreError, match="needs run 'r'; got none"):
        Journal.open(many, "r")
    with create(many) as one, Journal.create(many, run="other", plan_json="{}", digest="e", state=[b"o"]) as other:
        commit(one, 1)
        commit(other, 1)
        commit(one, 2)
        other.finish("failed", "quorum", {})
        commit(one, 3)
        assert [record["round"] for record in other.records()] == [1]
        assert other.state == b"1"
    with again(many) as one:
        assert (one.round, one.state, one.status) == (3, b"3", "running")
        assert [record["round"] for record in one.records()] == [1, 2, 3]
        assert one.heads() == {"A": "h3"}


def test_a_store_of_many_runs_asks_which(many: str) -> None:
    create(many).close()
    for read_only in (True, False):
        with pytest.raises(StoreError, match="needs the name of a run"):
            Journal.open(many, read_only=read_only)


def test_a_file_of_one_run_is_no_other_runs(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    create(path).close()
    Journal.open(path, "r").close()
    with pytest.raises(StoreError, match="needs the file of 'q'; got the file of 'r'"):
        Journal.open(path, "q")
    with pytest.raises(StoreError, match="needs the file of 'q'; got the file of 'r'"):
        Journal.create(path, run="q", plan_json="{}", digest="d", state=[b""])
    with pytest.raises(StoreError, match="needs a store of many runs; got the file of 'r'"):
        Journal.open(f"sqlite:///{path}", "r")


def test_a_store_of_many_runs_may_be_named_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    create(f"sqlite:///{path}").close()
    Journal.create(path, run="q", plan_json="{}", digest="d", state=[b"q"]).close()
    with Journal.open(path, "q") as journal:
        assert journal.state == b"q"


def test_a_run_that_another_process_took_up_is_written_no_more(place: Place) -> None:
    with create(place) as journal:
        journal._claim()  # as another process does that holds the lock now
        journal._epoch -= 1
        writes: list[Callable[[], object]] = [
            lambda: commit(journal, 1), lambda: journal.stage([b"s"]), lambda: journal.finish("done", None, {}),
        ]  # fmt: skip
        for write in writes:
            with pytest.raises(StoreError, match="another process took up"):
                write()
    with again(place) as journal:
        assert (journal.round, journal.state, journal.status) == (0, b"0", "running")


def test_a_run_in_a_file_of_its_own_reads_as_the_run_does(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "out" / "journal.sqlite"
    path.parent.mkdir()
    with create(place) as journal:
        commit(journal, 1)
        journal.export(path)
        commit(journal, 2)
        journal.finish("done", None, {"accuracy": 0.5})
        journal.export(path)
        with Journal.open(path, read_only=True) as copy:
            for name in ("run", "plan_json", "digest", "status", "reason", "round", "state", "result"):
                assert getattr(copy, name) == getattr(journal, name)
            assert (copy.records(), copy.charges()) == (journal.records(), journal.charges())
    assert [file.name for file in path.parent.iterdir()] == ["journal.sqlite"]


@pytest.mark.parametrize(
    ("url", "got"),
    [
        ("runs/store", "a text that is none"),
        ("postgresql+psycopg//me:sesame@host/db", "a text that is none"),
        ("postgresql://me:sesame@host:port/db", "a text that is none"),
        ("mysql://me:sesame@host/db", "mysql"),
        ("postgresql+asyncpg://me:sesame@host/db", "asyncpg"),
        ("postgresql://me:sesame@host", "without a database"),
        ("sqlite://", "sqlite"),
        ("sqlite:///:memory:", "sqlite"),
    ],
)
def test_a_url_that_names_no_store(url: str, got: str) -> None:
    with pytest.raises(StoreError, match=got) as caught:
        Journal.open(url, "r")
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("lengths", [(0,), (1,), (1 << 20,), ((1 << 20) + 1, 5), (3, 0, 3 << 20, 7), (1 << 19,) * 5])
def test_a_state_of_any_pieces_comes_back_and_may_shrink_and_grow(place: Place, lengths: tuple[int, ...]) -> None:
    pieces = [os.urandom(length) for length in lengths]
    with Journal.create(place, run="r", plan_json="{}", digest="d", state=[b"0"]) as journal:
        for number, state in enumerate([pieces, [b"short"], pieces[::-1], []], 1):
            journal.commit_round(number, state=state, record={"round": number}, charges=[])
            assert journal.state == b"".join(state)


def test_a_large_state_takes_no_memory_beside_it(tmp_path: Path) -> None:
    state = [os.urandom(40_000_000)]
    with Journal.create(tmp_path / "j.sqlite", run="r", plan_json="{}", digest="d", state=[b"0"]) as journal:
        tracemalloc.start()
        journal.commit_round(1, state=state, record={"round": 1}, charges=[])
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 8_000_000
        assert journal.state == state[0]
