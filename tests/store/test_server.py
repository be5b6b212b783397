"""A PostgreSQL server that restarts, cuts connections or refuses: nothing is lost or written twice, and one error says why."""

import threading
import time
from collections.abc import Callable

import pytest
from sqlalchemy import Engine, event
from tests.store.cluster import Cluster
from tests.store.severed import severed

from consilia.core.errors import StoreError
from consilia.store import database, locks
from consilia.store.journal import Journal
from consilia.store.runs import RunQueue


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "GRACE_SECONDS", 0.2)


def name_of(url: str) -> str:
    return url.split("/")[3].partition("?")[0]


def create(url: str, name: str = "r") -> Journal:
    return Journal.create(url, run=name, plan_json="{}", digest="d", state=[b"0"])


def commit(journal: Journal, round: int) -> None:
    journal.commit_round(
        round, state=[b"%d" % round], record={"round": round}, charges=[{"site": "A", "head": f"h{round}"}]
    )


def whole(url: str, round: int, name: str = "r") -> None:
    """Check that the store holds exactly the first rounds, each once."""
    with Journal.open(url, name, read_only=True) as journal:
        assert (journal.round, journal.state) == (round, b"%d" % round)
        assert journal.records() == [{"round": number} for number in range(1, round + 1)]
        assert [charge["head"] for charge in journal.charges()] == [f"h{number}" for number in range(1, round + 1)]


def run(url: str, name: str) -> None:
    """Everything that a coordinator writes."""
    with RunQueue(url) as queue:
        queue.submit(name, "{}", by="me")
        with queue.held(name):
            with create(url, name) as journal:
                commit(journal, 1)
                journal.stage([b"staged"])
                commit(journal, 2)
            queue.ask_stop(name, by="me")
            with Journal.open(url, name) as journal:
                commit(journal, 3)
                journal.finish("stopped", "asked", {"rounds": 3})
        assert queue.stop_asked(name)
    whole(url, 3, name)
    with RunQueue(url) as queue:
        found = queue.all()[-1]
        assert (found.run, found.status, found.reason, found.round) == (name, "stopped", "asked", 3)


def test_sessions_that_are_ended_after_any_statement_cost_nothing(cluster: Cluster, url: str) -> None:
    seen = number = 0

    def end(*_of_the_statement: object) -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            with cluster.sql() as admin:
                admin.execute(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", (name_of(url),)
                )

    event.listen(Engine, "after_cursor_execute", end)
    try:
        while seen >= number:
            seen, number = 0, number + 1
            RunQueue(cluster.emptied(name_of(url))).close()
        assert number > 10
        seen = number = 0
        while seen >= number:
            seen, number = 0, number + 1
            run(url, f"run {number}")
        assert number > 30
    finally:
        event.remove(Engine, "after_cursor_execute", end)


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("what", ["journal", "queue"])
def test_a_commit_whose_answer_is_lost_is_found_and_not_repeated(
    cluster: Cluster, url: str, after: bool, what: str
) -> None:
    with severed(cluster) as between:
        place = f"postgresql://postgres@/{name_of(url)}{between.url}"
        if what == "queue":
            with RunQueue(place) as queue:
                for write in (
                    lambda: queue.submit("q", "{}", by="me"),
                    lambda: queue.ask_stop("q", by="me"),
                    lambda: queue.end("q", "failed", "why"),
                ):
                    between.cut(b"COMMIT", after=after)
                    write()
                assert [(run.run, run.status, run.reason) for run in queue.all()] == [("q", "failed", "why")]
            assert between.cuts == 3
            return
        RunQueue(url).close()
        between.cut(b"COMMIT", after=after)
        with create(place) as journal:
            commit(journal, 1)
            for number in (2, 3):
                between.cut(b"COMMIT", after=after)
                commit(journal, number)
            between.cut(b"COMMIT", after=after)
            journal.stage([b"3"])
            between.cut(b"COMMIT", after=after)
            journal.finish("done", None, {})
        assert between.cuts == 5
    whole(url, 3)


def test_a_restart_of_the_server_costs_nothing(cluster: Cluster, url: str) -> None:
    with RunQueue(url) as queue, create(url) as journal:
        queue.submit("q", "{}", by="me")
        for number, mode in ((1, "fast"), (2, "immediate")):
            commit(journal, number)
            cluster.restart(mode)
        assert [run.run for run in queue.all()] == ["q"]
        cluster.stop()
        back = threading.Timer(0.5, cluster.start)
        back.start()
        commit(journal, 3)
        back.join()
        assert len(journal.records()) == 3
        with pytest.raises(StoreError, match="another process that runs it now"):  # the lock came back too
            Journal.open(url, "r")
    whole(url, 3)


def test_a_server_that_stays_away_is_given_up(url: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "RECONNECT_SECONDS", 0.3)
    with create(url) as journal:
        commit(journal, 1)
        cluster.stop()
        try:
            attempts: list[Callable[[], object]] = [lambda: commit(journal, 2), journal.records]
            for attempt in attempts:
                with pytest.raises(StoreError, match="needs a PostgreSQL server that answers") as caught:
                    attempt()
                assert "every round is safe" in str(caught.value)
            with pytest.raises(StoreError, match="needs a PostgreSQL server that answers"):
                Journal.open(url, "r")
        finally:
            cluster.start()
        commit(journal, 2)
    whole(url, 2)


def test_nobody_commits_under_a_lock_that_another_has(
    cluster: Cluster, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "RECONNECT_SECONDS", 0.5)
    with create(url) as journal:
        commit(journal, 1)
        lock = journal._lock
        assert isinstance(lock, locks.ServerLock)
        assert lock._connection is not None
        # Its session is cut off unseen, and another process is quicker to take the run up.
        (pid,) = lock._connection.exec_driver_sql("SELECT pg_backend_pid()").one()
        with cluster.sql() as admin:
            admin.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
        with Journal.open(url, "r") as other:
            with pytest.raises(StoreError, match="another process that runs it now"):
                commit(journal, 2)
            commit(other, 2)
        # Also once that one has left.
        with pytest.raises(StoreError, match="another process took up"):
            commit(journal, 2)
    whole(url, 2)


def test_a_lock_that_its_session_does_not_hold_any_more_is_noticed(url: str) -> None:
    with create(url) as journal:
        lock = journal._lock
        assert isinstance(lock, locks.ServerLock)
        assert lock._connection is not None
        lock._connection.exec_driver_sql(
            "SELECT pg_advisory_unlock_all()"
        )  # as behind a proxy that hands out other sessions
        with Journal.open(url, "r") as other:
            commit(other, 1)
        with pytest.raises(StoreError, match="another process took up"):
            commit(journal, 1)


@pytest.mark.parametrize("setting", ["off", "local", "remote_write", "on", "remote_apply"])
def test_what_is_committed_is_flushed_whatever_the_server_says(cluster: Cluster, url: str, setting: str) -> None:
    with cluster.sql() as admin:
        admin.execute(f"ALTER DATABASE {name_of(url)} SET synchronous_commit = {setting}")
    with create(url) as journal, journal._db._engine.connect() as connection:
        value = connection.exec_driver_sql("SHOW synchronous_commit").scalar()
    assert value == (setting if setting == "remote_apply" else "on")


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_a_server_that_does_not_flush_is_refused(cluster: Cluster, url: str, setting: str) -> None:
    with cluster.sql() as admin:
        admin.execute(f"ALTER SYSTEM SET {setting} = off")
    _reload(cluster)
    try:
        with pytest.raises(StoreError, match=f"needs a server with {setting} = on"):
            create(url)
    finally:
        with cluster.sql() as admin:
            admin.execute(f"ALTER SYSTEM RESET {setting}")
        _reload(cluster)
    create(url).close()


def _reload(cluster: Cluster) -> None:
    with cluster.sql() as admin:
        admin.execute("SELECT pg_reload_conf()")
    time.sleep(0.1)
