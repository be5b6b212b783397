"""The queue of runs: order, ends, stops, and one coordinator a run."""

import os
import signal
import time
from pathlib import Path

import pytest
from sqlalchemy import text
from tests.store.cluster import Cluster
from tests.store.forked import killed_at

from consilia.core.errors import PlanError, StoreError
from consilia.store import leases, locks
from consilia.store.journal import Journal
from consilia.store.runs import RunQueue


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.6)
    monkeypatch.setattr(locks, "GRACE_SECONDS", 5.0)


def waits(queue: RunQueue) -> list[str]:
    return [run.run for run in queue.open()]


def until_it_waits(queue: RunQueue, run: str) -> None:
    deadline = time.monotonic() + 30
    while run not in waits(queue):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def begin(place: str, run: str = "r") -> Journal:
    return Journal.create(place, run=run, plan_json="{}", digest="d", state=[b"0"])


def test_runs_wait_in_the_order_of_submission(many: str) -> None:
    with RunQueue(many) as queue:
        for run in ("b", "a", "c"):
            found = queue.submit(run, f'{{"of": "{run}"}}', by="ann")
            assert (found.run, found.status, found.by, found.round, found.reason) == (run, "queued", "ann", 0, None)
        assert waits(queue) == ["b", "a", "c"]
    with RunQueue(many) as queue:
        assert [run.plan_json for run in queue.all()] == ['{"of": "b"}', '{"of": "a"}', '{"of": "c"}']


def test_a_run_is_submitted_once(many: str) -> None:
    with RunQueue(many) as queue:
        first = queue.submit("r", "{}", by="ann")
        assert queue.submit("r", "{}", by="bob") == first
        with pytest.raises(PlanError, match="needs the plan it was submitted with"):
            queue.submit("r", '{"other": 1}', by="ann")
        queue.end("r", "done", None)
        assert queue.submit("r", "{}", by="ann").status == "done"  # told again, not run again
        assert waits(queue) == []


def test_the_queue_follows_the_journal(many: str) -> None:
    with RunQueue(many) as queue:
        queue.submit("r", "{}", by="ann")
        with queue.held("r"), begin(many) as journal:
            assert [(run.status, run.round) for run in queue.all()] == [("running", 0)]
            journal.commit_round(1, state=[b"1"], record={}, charges=[])
            assert [(run.status, run.round) for run in queue.all()] == [("running", 1)]
            journal.finish("failed", "quorum", {})
            assert [(run.status, run.reason) for run in queue.all()] == [("failed", "quorum")]
        with pytest.raises(StoreError, match="a run that is failed"), queue.held("r"):
            pass


def test_an_end_is_the_end(many: str) -> None:
    with RunQueue(many) as queue:
        queue.submit("r", "{}", by="ann")
        with begin(many) as journal:
            queue.end("r", "failed", "its plan no longer fits")
            with pytest.raises(StoreError, match="another process took up"):
                journal.commit_round(1, state=[b"1"], record={}, charges=[])
        queue.end("r", "done", None)
        assert [(run.status, run.reason) for run in queue.all()] == [("failed", "its plan no longer fits")]
        with Journal.open(many, "r") as journal:
            assert (journal.status, journal.reason, journal.round) == ("failed", "its plan no longer fits", 0)
        with pytest.raises(StoreError, match="to be in the queue"):
            queue.end("other", "failed", "why")


def test_a_stop_is_asked_for(many: str) -> None:
    with RunQueue(many) as queue:
        queue.submit("r", "{}", by="ann")
        assert not queue.stop_asked("r")
        with RunQueue(many) as other:
            other.ask_stop("r", by="bob")
        assert queue.stop_asked("r")
        assert queue.all()[0].reason == "asked to stop by bob"
        queue.end("r", "stopped", "stopped by an operator")
        queue.ask_stop("r", by="ann")
        assert queue.all()[0].reason == "stopped by an operator"
        with pytest.raises(StoreError, match="consilia status lists the runs"):
            queue.ask_stop("other", by="ann")
        assert not queue.stop_asked("other")


def test_one_coordinator_works_on_a_run(many: str) -> None:
    with RunQueue(many) as one, RunQueue(many) as other:
        one.submit("r", "{}", by="ann")
        one.submit("s", "{}", by="ann")
        with one.held("r"):
            assert waits(other) == ["s"]
            with pytest.raises(StoreError, match="another that works on it"), other.held("r"):
                pass
            with pytest.raises(StoreError, match="its coordinator to end it"):
                other.end("r", "failed", "why")
            time.sleep(0.1 + leases.LEASE_SECONDS)  # it is renewed
            assert waits(other) == ["s"]
            with other.held("s"):
                assert waits(one) == []
        with other.held("r"):
            assert waits(one) == ["s"]
        assert waits(one) == ["r", "s"]


def test_of_many_coordinators_one_gets_a_run(many: str, tmp_path: Path) -> None:
    runs = [f"r{number}" for number in range(4)]
    with RunQueue(many) as queue:
        for run in runs:
            queue.submit(run, "{}", by="ann")
    got = tmp_path / "got"

    def work() -> None:
        with RunQueue(many) as queue:
            while waiting := queue.open():
                try:
                    with queue.held(waiting[0].run), begin(many, waiting[0].run) as journal:
                        with got.open("a") as file:
                            file.write(f"{journal.run}\n")
                        journal.finish("done", None, {})
                except StoreError as error:
                    if "works on it" not in str(error) and "a run that is done" not in str(error):
                        raise

    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            try:
                work()
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert sorted(got.read_text().split()) == runs


def lose(place: str, rounds: int = 0) -> None:
    """A coordinator that does some rounds of a run and is killed."""

    def work() -> None:
        with RunQueue(place) as queue:
            until_it_waits(queue, "r")
            with queue.held("r"):
                journal = Journal.open(place, "r") if queue.all()[0].status == "running" else begin(place)
                for _ in range(rounds):
                    journal.commit_round(journal.round + 1, state=[b""], record={}, charges=[])
                os.kill(os.getpid(), signal.SIGKILL)

    assert killed_at("", work) == -signal.SIGKILL


def test_a_run_whose_coordinator_is_lost_waits_again(many: str) -> None:
    with RunQueue(many) as queue:
        queue.submit("r", "{}", by="ann")
        lose(many, 2)
        until_it_waits(queue, "r")
        with queue.held("r"), Journal.open(many, "r") as journal:
            assert journal.round == 2


def test_a_run_that_takes_its_coordinators_down_ends(many: str) -> None:
    with RunQueue(many) as queue:
        queue.submit("r", "{}", by="ann")
        for rounds in (1, 0, 2, 1, 0, 0):  # a round that was done begins the count again
            lose(many, rounds)
        until_it_waits(queue, "r")
        with pytest.raises(StoreError, match="3 coordinators in a row were lost before round 5"), queue.held("r"):
            pass
        (run,) = queue.all()
        assert (run.status, run.round) == ("failed", 4)
        assert run.reason == "3 coordinators in a row were lost before round 5 was done"
        assert waits(queue) == []
        with Journal.open(many, "r") as journal:
            assert (journal.status, journal.round) == ("failed", 4)


def test_a_coordinator_that_was_frozen_past_its_lease_writes_no_more(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE_SECONDS", 60.0)  # frozen: it renews nothing while this test runs
    with RunQueue(url) as one, RunQueue(url) as other:
        one.submit("r", "{}", by="ann")
        with one.held("r"), begin(url) as journal:
            lock = journal._lock
            assert isinstance(lock, locks.ServerLock)
            with one._db._engine.begin() as connection:
                connection.exec_driver_sql("UPDATE queue SET until = 0")
            lock.close()  # as its sessions end with the machine's network
            with other.held("r"), Journal.open(url, "r") as taken:
                taken.commit_round(1, state=[b"theirs"], record={}, charges=[])
            with pytest.raises(StoreError, match="took up"):
                journal.commit_round(1, state=[b"mine"], record={}, charges=[])
    with Journal.open(url, "r", read_only=True) as journal:
        assert journal.state == b"theirs"


def test_a_lease_is_renewed_through_a_restart_of_the_server(
    cluster: Cluster, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LEASE_SECONDS", 3.0)
    with RunQueue(url) as one, RunQueue(url) as other:
        one.submit("r", "{}", by="ann")
        with one.held("r"):
            cluster.restart()
            left = text("SELECT until - extract(epoch FROM clock_timestamp()) FROM queue")
            deadline = time.monotonic() + 30
            while other._db.read(lambda connection: connection.execute(left).scalar_one()) < 2.0:
                assert time.monotonic() < deadline
            assert waits(other) == []
