"""The coordinator's journal: round by round, one process, one terminal state."""

import subprocess
import sys
from pathlib import Path

import pytest

from consilia.core.canonical import Json
from consilia.core.errors import StoreError
from consilia.store.journal import Journal


def create(path: Path) -> Journal:
    return Journal.create(path, run="r", plan_json='{"a":1}', digest="d", state=b"0")


def commit(journal: Journal, round: int) -> None:
    record: dict[str, Json] = {"round": round, "accuracy": 0.5}
    charge: dict[str, Json] = {"site": "A", "head": f"h{round}", "count": round}
    journal.commit_round(round, state=b"%d" % round, record=record, charges=[charge])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "j.sqlite"


def test_what_was_committed_is_found_again(path: Path) -> None:
    with create(path) as journal:
        assert (journal.round, journal.state, journal.status) == (0, b"0", "running")
        for round in (1, 2):
            commit(journal, round)
    with Journal.open(path) as journal:
        assert (journal.run, journal.plan_json, journal.digest) == ("r", '{"a":1}', "d")
        assert (journal.round, journal.state, journal.status, journal.result) == (2, b"2", "running", None)
        assert [record["round"] for record in journal.records()] == [1, 2]
        assert [charge["count"] for charge in journal.charges()] == [1, 2]
        assert journal.heads() == {"A": "h2"}
        commit(journal, 3)
        journal.finish("stopped", "patience", {"accuracy": 0.5})
    with Journal.open(path) as journal:
        assert (journal.status, journal.reason, journal.round) == ("stopped", "patience", 3)
        assert journal.result == {"accuracy": 0.5}


def test_a_site_that_said_nothing_keeps_its_last_known_head(path: Path) -> None:
    with create(path) as journal:
        commit(journal, 1)
        journal.commit_round(2, state=b"2", record={}, charges=[{"site": "A", "head": ""}, {"site": "B", "head": ""}])
        assert journal.heads() == {"A": "h1"}


@pytest.mark.parametrize("round", [0, 1, 3])
def test_rounds_are_committed_once_and_in_turn(path: Path, round: int) -> None:
    with create(path) as journal:
        commit(journal, 1)
        with pytest.raises(StoreError, match="needs round 2 next"):
            commit(journal, round)
        commit(journal, 2)
        assert [record["round"] for record in journal.records()] == [1, 2]


def test_a_round_that_cannot_be_recorded_changes_nothing(path: Path) -> None:
    with create(path) as journal:
        with pytest.raises(ValueError, match="JSON compliant"):
            journal.commit_round(1, state=b"1", record={"loss": float("nan")}, charges=[])
        assert (journal.round, journal.state) == (0, b"0")
        commit(journal, 1)


def test_an_ended_run_stays_ended(path: Path) -> None:
    with create(path) as journal:
        journal.finish("failed", "quorum", {})
    with Journal.open(path) as journal:
        with pytest.raises(StoreError, match="a run that is failed"):
            commit(journal, 1)
        with pytest.raises(StoreError, match="a run that is failed"):
            journal.finish("done", None, {})


def test_running_is_not_an_end(path: Path) -> None:
    with create(path) as journal, pytest.raises(StoreError, match="done, stopped or failed"):
        journal.finish("running", None, {})


def test_a_run_is_created_once(path: Path) -> None:
    create(path).close()
    with pytest.raises(StoreError, match="a path without a run"):
        create(path)
    Journal.open(path).close()  # the refusal let go of the lock


def test_two_processes_cannot_run_one_run(path: Path) -> None:
    with create(path) as journal:
        with pytest.raises(StoreError, match="another process that runs it now"):
            Journal.open(path)
        code = f"""
from pathlib import Path
from consilia.core.errors import StoreError
from consilia.store.journal import Journal
try:
    Journal.open(Path({str(path)!r}))
except StoreError as error:
    raise SystemExit(str(error))
"""
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "another process that runs it now" in other.stderr
        commit(journal, 1)
    Journal.open(path).close()


def test_a_report_reads_while_the_run_goes_on(path: Path) -> None:
    with create(path) as journal:
        commit(journal, 1)
        with Journal.open(path, read_only=True) as view:
            assert (view.round, view.state) == (1, b"1")
            with pytest.raises(StoreError, match="opened to read"):
                commit(view, 2)
            commit(journal, 2)
            assert len(view.records()) == 2
        with pytest.raises(StoreError, match="another process"):  # closing the view kept the lock
            Journal.open(path)


def test_only_the_newest_state_is_kept(path: Path) -> None:
    def size() -> int:
        return sum(file.stat().st_size for file in path.parent.iterdir())

    with create(path) as journal:
        sizes = []
        for round in range(1, 31):
            journal.commit_round(round, state=bytes([round]) * 400_000, record={"round": round}, charges=[])
            sizes.append(size())
    # One state in the database and the write-ahead log, which is emptied at 1000 pages of 16 kB.
    assert path.stat().st_size < 700_000
    assert max(sizes) < 20_000_000
