"""Simulated sites that train together: the model of one by one, the order that is the guarantee, faults that stay apart."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.rounds.bench import HEART, RECORD, Bench

from consilia.core.randomness import SharedSeed
from consilia.core.update import Gone, ProtocolMessage
from consilia.core.wire import encode, pack_vector
from consilia.federation import simulation
from consilia.learning.cohort import together as engine
from consilia.learning.cohort.lockstep import in_lock_step
from consilia.plan.load import from_text
from consilia.plan.schema import Plan
from consilia.rounds import together
from consilia.rounds.entropy import Entropy
from consilia.rounds.pending import Outcome, Pending
from consilia.rounds.ports import Arrival, Trained
from consilia.store.ledger_store import SiteStore
from consilia.transport.incohort import InCohort
from consilia.transport.inprocess import InProcess

SITES = 12
PLAIN = 'unit = "none"'
FIXED = 'algorithm = "fedavg"\nbatch = "fixed"\nbatch_size = 16\nlocal_steps = 5\nlearning_rate = 0.1'
POISSON = 'algorithm = "fedavg"\nbatch = "poisson"\nsampling_rate = 0.3\nlocal_steps = 3\nlearning_rate = 0.1'
SCAFFOLD = FIXED + "\nscaffold = true"


def plan_text(training: str = FIXED, privacy: str = PLAIN, *, sites: int = SITES, reproducible: bool = False) -> str:
    return HEART.format(
        rounds=5, training=training, privacy=privacy, aggregation="", metrics="public", evaluation="",
        reproducible=str(reproducible).lower(),
    ).replace('counts = "public"', f'counts = "public"\npopulation = "heart"\npartition = "iid"\ncount = {sites}')  # fmt: skip


def plan(training: str = FIXED, privacy: str = PLAIN, **how: Any) -> Plan:
    return from_text(plan_text(training, privacy, **how))


@pytest.fixture
def fixed_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two runs draw the same batches and noise, though neither is in the reproducible mode."""
    monkeypatch.setattr(simulation, "entropy_of", lambda _plan: Entropy(SharedSeed.of(5)))


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many sites were trained in each chunk."""
    sizes: list[int] = []

    def seen(model: Any, tasks: Sequence[Any], width: int) -> Any:
        sizes.append(len(tasks))
        return in_lock_step(model, tasks, width)

    monkeypatch.setattr(engine, "in_lock_step", seen)
    return sizes


def train(one: Bench) -> None:
    if one.prepared.run_plan.plan.training.scaffold:
        one.coordinator.state.control = np.zeros_like(one.prepared.initial)
    one.coordinator.train()


@pytest.mark.usefixtures("fixed_secrets")
@pytest.mark.parametrize(
    ("training", "privacy"), [(FIXED, PLAIN), (POISSON, RECORD), (SCAFFOLD, PLAIN), (FIXED, RECORD)]
)
def test_a_run_comes_to_the_model_of_one_by_one(
    training: str, privacy: str, bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, trained: list[int]
) -> None:
    monkeypatch.setattr(together.Together, "joint", property(lambda _self: True))  # after the trials, whatever they say
    one = bench(plan(training, privacy), run="together")
    assert isinstance(one.simulation.transport, InCohort)
    train(one)
    assert sum(trained) == 5 * SITES
    monkeypatch.setattr(simulation, "many_small", lambda _prepared: False)
    other = bench(plan(training, privacy), run="one-by-one")
    train(other)
    assert sum(trained) == 5 * SITES
    moved = np.abs(one.coordinator.state.model - one.prepared.initial).max()
    apart = np.abs(one.coordinator.state.model - other.coordinator.state.model).max()
    assert apart < 1e-5 < 1e-3 < moved
    for mine, theirs in zip(one.journal.records(), other.journal.records(), strict=True):
        assert mine["answered"] == theirs["answered"] == sorted(one.simulation.sites)
        assert mine["epsilon_spent"] == theirs["epsilon_spent"]


def test_the_reproducible_mode_and_few_sites_stay_one_by_one(bench: Callable[..., Bench]) -> None:
    for how in ({"reproducible": True}, {"sites": together.LEAST_TOGETHER - 1}):
        one = bench(plan(**how), run=f"run-{len(how)}-{next(iter(how))}")
        assert type(one.simulation.transport) is InProcess


def test_every_site_reserves_before_one_trains_and_commits_before_its_bytes_leave(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str]] = []
    reserve, commit, compute = SiteStore.reserve, SiteStore.commit, together.Together.compute

    def reserving(self: SiteStore, *args: Any, **named: Any) -> Any:
        hold = reserve(self, *args, **named)
        seen.append(("reserved", self.site))
        return hold

    def committing(self: SiteStore, *args: Any, **named: Any) -> Any:
        head = commit(self, *args, **named)
        seen.append(("committed", self.site))
        return head

    def computing(self: together.Together, pending: Sequence[Pending]) -> list[Outcome]:
        seen.extend(("trained", one.task.site) for one in pending if one.task.kind == "train")
        return compute(self, pending)

    monkeypatch.setattr(SiteStore, "reserve", reserving)
    monkeypatch.setattr(SiteStore, "commit", committing)
    monkeypatch.setattr(together.Together, "compute", computing)
    monkeypatch.setattr(together, "_MOST", 5)
    one = bench(plan(POISSON, RECORD))
    names = sorted(one.simulation.sites)
    for name in names:
        one.simulation.transport.send(name, task(one, name))
    for event in one.simulation.transport.events(60.0):
        assert isinstance(event, Arrival)
        seen.append(("left", event.site))
    for turn in (names[:5], names[5:10], names[10:]):
        steps = ("reserved", "trained", "committed", "left")
        mine = [item for item in seen if item[1] in turn]
        assert sorted(mine) == sorted((step, name) for step in steps for name in turn)
        assert [step for step, _ in mine] == [step for step in steps for _ in turn]
        assert seen[: len(mine)] == mine  # the next turn begins when this one has left
        del seen[: len(mine)]


def task(one: Bench, site: str, number: int = 1, kind: str = "train") -> bytes:
    agreed: Any = {"plan": one.prepared.run_plan.digest, "run": "bench", "counted": 0}
    return encode(ProtocolMessage(kind, site, number, agreed, pack_vector(one.prepared.initial)))


@pytest.mark.parametrize("joint", [None, True, False])
def test_one_sites_fault_costs_that_site_only(
    joint: bool | None, bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = bench(plan(POISSON, RECORD))
    monkeypatch.setattr(together.Together, "joint", property(lambda _self: joint))
    names = sorted(one.simulation.sites)
    learners: list[Any] = [one.simulation.sites[name]._learner for name in names]

    def explode(*_: object) -> None:
        raise RuntimeError("patient 42 has a secret")

    def batches(*_: object) -> Callable[[], NDArray[np.int64]]:
        return lambda: np.array([10**6])

    class Dead:
        train = explode

    one.simulation.sites[names[0]]._learner = Dead()  # type: ignore[assignment]
    learners[2].task = explode
    learners[5]._batches = batches
    learners[7]._features[:] = np.nan
    store = one.simulation.sites[names[9]]._store
    assert store is not None
    store.close_run("bench", "done")
    one.coordinator.train()
    for record in one.journal.records():
        assert record["dropped"] == {
            names[0]: "failed: RuntimeError", names[2]: "failed: RuntimeError", names[5]: "failed: IndexError",
            names[9]: "refused: StoreError",
        }  # fmt: skip
        assert record["status"] == "counted"
    assert np.isfinite(one.coordinator.state.model).all()
    assert all(b"patient 42" not in frame for _, frame in one.transport.up)


class Clock:
    """Seconds that pass as a test says."""

    def __init__(self, *steps: float) -> None:
        self._steps, self.now = iter(steps), 0.0

    def __call__(self) -> float:
        self.now += next(self._steps, 0.0)
        return self.now


@pytest.mark.parametrize("slower", ["alone", "joint"])
def test_the_quicker_way_is_kept_and_trials_count(slower: str, bench: Callable[..., Bench], trained: list[int]) -> None:
    # Asked three times a trial: at its begin, between, and at its end. The first of three is an outlier, as a warm-up is.
    alone, joint = (4.0, 4.0) if slower == "alone" else (4.0, 80.0)
    first, *rest = [(0.0, 999.0, 999.0), (0.0, alone, joint), (0.0, alone, joint)]
    one = bench(plan(FIXED))
    trainer = together.Together(one.prepared.model, Clock(*first, *rest[0], *rest[1]))
    one.simulation.transport._trainer = trainer  # type: ignore[attr-defined]
    one.coordinator.train()
    assert trainer.joint is (slower == "alone")
    assert trainer.at_once == (256 if slower == "alone" else 1)
    assert trained[:3] == [SITES - 4] * 3
    assert trained[3:] == ([SITES] * 2 if slower == "alone" else [])
    assert all(len(record["answered"]) == SITES for record in one.journal.records())


def test_what_a_turn_holds_is_bounded() -> None:
    class Model:
        dim = 1 << 20

    trainer = together.Together(Model(), lambda: 0.0)  # type: ignore[arg-type]
    assert trainer.at_once == 4
    Model.dim = 1 << 30
    assert trainer.at_once == 1


class Plain:
    """A site that answers with what it was asked, and tells when it began."""

    def __init__(self, begun: list[bytes]) -> None:
        self.begun = begun

    def begin(self, frame: bytes) -> bytes | Pending:
        self.begun.append(frame)
        return b"answer to " + frame

    def finish(self, _pending: Pending, _outcome: Outcome) -> bytes:
        raise AssertionError("nothing is pending")


class Three:
    """Three sites a turn."""

    at_once = 3

    def compute(self, pending: Sequence[Pending]) -> list[Outcome]:
        return [Trained(np.zeros(1, np.float32), {}, None) for _ in pending]


@pytest.mark.parametrize("writers", [1, 4])
def test_frames_come_in_order_and_a_site_has_one_in_a_turn(writers: int) -> None:
    begun: list[bytes] = []
    transport = InCohort({name: Plain(begun) for name in "abc"}, Three(), lambda: 0.0, writers=writers)
    for site, frame in (("a", b"1"), ("b", b"2"), ("a", b"3"), ("x", b"4"), ("c", b"5")):
        transport.send(site, frame)
    events = list(transport.events(1.0))
    assert events == [
        Arrival("a", b"answer to 1"), Arrival("b", b"answer to 2"), Arrival("a", b"answer to 3"), Gone("x", "not connected"),
        Arrival("c", b"answer to 5"),
    ]  # fmt: skip
    assert begun.index(b"3") >= 2  # when the first frame to "a" had its answer


def test_a_turn_that_ends_or_begins_late_is_gone() -> None:
    begun: list[bytes] = []
    now = [0.0]

    class Slow(Three):
        def compute(self, pending: Sequence[Pending]) -> list[Outcome]:
            now[0] += 6.0
            return super().compute(pending)

    transport = InCohort({name: Plain(begun) for name in "abcdefghi"}, Slow(), lambda: now[0], writers=1)
    for name in "abcdefghi":
        transport.send(name, name.encode())
    events = list(transport.events(10.0))
    assert [type(event) for event in events] == [Arrival] * 3 + [Gone] * 6
    assert len(begun) == 6  # the last three were not asked any more


POINTS = ("site.before_reserve:20", "site.after_reserve:20", "site.before_commit:20", "ledger.commit.written:20",
          "site.after_commit:20", "coordinator.before_commit:2")  # fmt: skip


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("kill")
    cases = [
        {"name": point, "plan": plan_text(POISSON, RECORD), "crash": point, "folder": str(folder / str(i))}
        for i, point in enumerate(POINTS)
    ]
    (folder / "cases.json").write_text(json.dumps(cases))
    worker = Path(__file__).with_name("crash_worker.py")
    done = subprocess.run(
        [sys.executable, str(worker), str(folder / "cases.json")], capture_output=True, text=True, timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {report["name"]: report for report in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_in_a_turn_costs_turns_but_never_an_uncharged_release(
    point: str, killed: dict[str, dict[str, Any]]
) -> None:
    report = killed[point]
    assert report["first"]["signal"] == 9, report["first"]
    assert report["second"]["status"] == "done", report["second"]
    assert report["second"]["rounds"] == 5
    lost = set()
    for state in (report["left"], report["after"]):
        state.pop("signal", None)
    for site, ledger in report["after"].items():
        assert ledger["charged"] >= ledger["committed"]
        assert ledger["charged"] >= report["left"][site]["charged"]
        assert ledger["charged"] == 5
        if ledger["charged"] > ledger["committed"]:
            lost.add(site)
    # Whoever had reserved and not committed lost its last turn, nobody else did.
    assert set(report["second"]["dropped"]) == lost
    assert all(why == "refused: BudgetExceeded" for why in report["second"]["dropped"].values())
    if point.startswith(("site.after_reserve", "site.before_commit", "ledger.commit.written")):
        assert lost
    if point.startswith("coordinator"):
        assert not lost
