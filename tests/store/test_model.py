"""Any order of calls, kills, cuts and reopenings leaves the coordinator's store where a plain model of it stands."""

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.store.cluster import Cluster
from tests.store.forked import killed_at

from consilia.core.errors import PlanError, StoreError
from consilia.store import leases, locks
from consilia.store.journal import Journal
from consilia.store.runs import RunQueue

RUNS = ("a", "b")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.2)
    monkeypatch.setattr(locks, "GRACE_SECONDS", 5.0)


@dataclass
class Run:
    """What a run should be."""

    plan: str | None = None
    begun: bool = False
    status: str = "queued"
    reason: str | None = None
    state: bytes = b""
    records: list[int] = field(default_factory=list)
    stop: bool = False


_steps = st.lists(
    st.tuples(
        st.sampled_from(["submit", "begin", "commit", "commit", "stage", "finish", "end", "stop", "cut", "reopen", "killed"]),
        st.sampled_from(RUNS), st.integers(0, 9),
    ),
    max_size=16,
)  # fmt: skip


class Machine:
    """A store beside its model; one process at a time works on it."""

    def __init__(self, place: str, cut: object) -> None:
        self.place = place
        self.cut = cut
        self.runs = {run: Run() for run in RUNS}
        self.journals: dict[str, Journal] = {}
        self.queue = RunQueue(place)

    def close(self) -> None:
        for journal in self.journals.values():
            journal.close()
        self.journals.clear()
        self.queue.close()

    def step(self, what: str, name: str, number: int) -> None:
        run, journal = self.runs[name], self.journals.get(name)
        text = f"{number % 2}"
        if what == "cut":
            self.cut()  # type: ignore[operator]
        elif what == "reopen":
            self.close()
            self.queue = RunQueue(self.place)
            for each, expected in self.runs.items():
                if expected.begun:
                    self.journals[each] = Journal.open(self.place, each)
        elif what == "submit":
            if run.plan not in (None, text):
                with pytest.raises(PlanError):
                    self.queue.submit(name, text, by="me")
                return
            self.queue.submit(name, text, by="me")
            run.plan = text
        elif run.plan is None:
            return
        elif what == "stop":
            self.queue.ask_stop(name, by="me")
            open = run.status in ("queued", "running")
            if open and not run.stop:
                run.stop, run.reason = True, "asked to stop by me"
        elif what == "end":
            self.queue.end(name, "failed", text)
            if run.status in ("queued", "running"):
                run.status, run.reason = "failed", text
        elif what == "begin":
            if run.begun or run.status != "queued":
                with pytest.raises(StoreError):
                    Journal.create(self.place, run=name, plan_json=text, digest="d", state=[b""]).close()
                return
            self.journals[name] = Journal.create(
                self.place, run=name, plan_json=text, digest="d", state=[b"%d" % number]
            )
            run.begun, run.status, run.state = True, "running", b"%d" % number
        elif journal is not None:
            self.write(run, journal, what, number)

    def write(self, run: Run, journal: Journal, what: str, number: int) -> None:
        round, state = len(run.records) + 1, b"%d" % number * 100

        def work() -> None:
            if what == "stage":
                journal.stage([state])
            elif what == "finish":
                journal.finish("done", str(number), {})
            else:
                journal.commit_round(round, state=[state], record={"round": round}, charges=[])

        if what == "killed":
            # Another process takes the run up, and dies between writing and committing, or right after.
            after = number % 2 == 0
            journal.close()
            place, at = self.place, f"journal.commit.{'committed' if after else 'written'}:1"

            def other() -> None:
                with Journal.open(place, journal.run) as mine:
                    mine.commit_round(round, state=[state], record={"round": round}, charges=[])

            done = killed_at(at, other)
            self.journals[journal.run] = Journal.open(place, journal.run)
            if run.status == "running":
                assert done == -9
                if after:
                    run.state, run.records = state, [*run.records, round]
            return
        if run.status != "running":
            with pytest.raises(StoreError):
                work()
            return
        work()
        if what == "finish":
            run.status, run.reason = "done", str(number)
        else:
            run.state = state
            run.records += [round] if what == "commit" else []

    def compare(self) -> None:
        found = {run.run: run for run in self.queue.all()}
        for name, run in self.runs.items():
            if run.plan is None:
                assert name not in found
                continue
            queued = found[name]
            assert (queued.plan_json, queued.status, queued.reason) == (run.plan, run.status, run.reason)
            assert queued.round == len(run.records)
            assert self.queue.stop_asked(name) == run.stop
            if run.begun:
                with Journal.open(self.place, name, read_only=True) as journal:
                    assert (journal.status, journal.round, journal.state) == (run.status, len(run.records), run.state)
                    assert [record["round"] for record in journal.records()] == run.records


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=_steps)
def test_in_a_file(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, int]]) -> None:
    place = f"sqlite:///{tmp_path_factory.mktemp('steps') / 'store.sqlite'}"
    _follow(Machine(place, lambda: None), steps)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=_steps)
def test_on_a_server_whose_sessions_are_cut(cluster: Cluster, url: str, steps: list[tuple[str, str, int]]) -> None:
    name = url.split("/")[3].partition("?")[0]

    def cut() -> None:
        with cluster.sql() as admin:
            admin.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", (name,))

    _follow(Machine(cluster.emptied(name), cut), steps)


def _follow(machine: Machine, steps: list[tuple[str, str, int]]) -> None:
    try:
        for step in (("submit", "a", 0), ("begin", "a", 0), *steps):
            machine.step(*step)
        machine.compare()
    finally:
        machine.close()
