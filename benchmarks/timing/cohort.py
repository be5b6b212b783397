"""Many small sites a round: trained one by one and together, in turns, so that whatever else the machine does meets both.

Whole rounds are those of one `consilia.run` whose rounds take turns; the training part is `learning.cohort` alone.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import consilia
from benchmarks.timing.clock import Moment, quartiles
from consilia.core.canonical import Json
from consilia.core.randomness import SecretRng, SharedSeed
from consilia.core.spec import Adjacency
from consilia.core.update import Gone
from consilia.data.batches import fixed_batches, poisson_batch
from consilia.dp.event import Event
from consilia.dp.ledger import Allotment
from consilia.federation import simulation
from consilia.learning.cohort.task import Task, alone
from consilia.learning.cohort.together import train_together
from consilia.learning.flat import FlatModel
from consilia.learning.local import LocalResult
from consilia.learning.models import build
from consilia.learning.work import LocalWork
from consilia.rounds.pending import Outcome, Pending
from consilia.rounds.ports import Arrival, Transport
from consilia.rounds.together import Together
from consilia.store.ledger_store import SiteStore
from consilia.transport.incohort import InCohort
from consilia.transport.inprocess import InProcess

_PLAN = """
[run]
name = "{name}"
seed = 7
[data]
source = "npz"
path = "{name}.npz"
classes = {classes}
split = "hash"
test_fraction = 0.0
[sites]
population = "nobody"
partition = "iid"
count = {sites}
{counts}
[model]
name = "{model}"
[training]
algorithm = "fedavg"
rounds = {rounds}
local_steps = 5
learning_rate = 0.1
{batches}
[aggregation]
selection = "count"
count = {asked}
[privacy]
{privacy}
[evaluation]
metrics = "hidden"
"""
_RECORD = 'unit = "record"\nnoise = "site"\nnoise_multiplier = 1.0\nclip_norm = 1.0\ndelta = 1e-5\ndelta_reason = "a benchmark"'
_ROWS = 100

Way = Callable[[FlatModel, Sequence[Task]], Sequence[object]]


@dataclass(frozen=True)
class Rounds:
    """A run to time: 5 local steps at 100 rows a site.

    Attributes:
        model: As the plan names it: logistic 16-2 or mlp 22-64-2.
        batches: Lines of the plan's section training.
        private: Record-level DP with noise at the site, so that ledgers are kept.
        sites: How many take part.
        asked: How many are asked a round.
    """

    model: str
    batches: str
    private: bool = False
    sites: int = 1000
    asked: int = 100


class InTurns:
    """One transport in odd rounds, another in even ones."""

    def __init__(self, *transports: Transport) -> None:
        self.transports = transports
        self.now = 0

    def send(self, site: str, frame: bytes) -> None:
        """Queue a frame."""
        self.transports[self.now].send(site, frame)

    def events(self, timeout: float, of: Collection[str] | None = None) -> Iterator[Arrival | Gone]:
        """Yield the answers."""
        yield from self.transports[self.now].events(timeout, of)


def whole_rounds(rounds: Rounds, folder: Path, pairs: int) -> dict[str, Json]:
    """Time whole rounds of one run, one by one and together in turns.

    Args:
        rounds: What to run.
        folder: A fresh folder.
        pairs: Pairs of rounds to take, after one pair that is not counted.
    """
    made: list[InTurns] = []

    def in_turns(sites: Mapping[str, Any], trainer: Together, clock: Callable[[], float], *, writers: int) -> InTurns:
        one_by_one = InProcess({name: site.handle for name, site in sites.items()}, clock)
        made.append(InTurns(one_by_one, InCohort(sites, trainer, clock, writers=writers)))
        return made[-1]

    times: tuple[list[Moment], list[Moment]] = ([], [])
    ended: list[Moment] = []

    def on_round(_record: object) -> None:
        if ended:
            times[made[0].now].append(Moment.now() - ended.pop())
        made[0].now = 1 - made[0].now
        ended.append(Moment.now())

    os.environ["CONSILIA_HOME"] = str(folder / "home")
    plan = _plan(rounds, folder, 2 * pairs + 3)
    with (
        patch.object(simulation, "InCohort", in_turns),
        patch.object(Together, "joint", property(lambda _self: True)),
    ):
        consilia.run(plan, out=folder / "run", on_round=on_round)
    apart, joint = times[0][1 : pairs + 1], times[1][1 : pairs + 1]
    return {
        "sites": rounds.sites, "sites_a_round": rounds.asked, "rows_a_site": _ROWS, "pairs": pairs,
        "faster_cpu": _ratios(apart, joint, "cpu"), "faster_wall": _ratios(apart, joint, "wall"),
        "one_by_one_cpu_ms": _ms(apart, "cpu"), "together_cpu_ms": _ms(joint, "cpu"),
        "one_by_one_wall_ms": _ms(apart, "wall"), "together_wall_ms": _ms(joint, "wall"),
    }  # fmt: skip


def _plan(rounds: Rounds, folder: Path, number: int) -> consilia.Plan:
    image = (4, 4) if rounds.model == "logistic" else (2, 11)
    rng, count = np.random.default_rng(3), rounds.sites * _ROWS
    np.savez(
        folder / "rows.npz", x_train=rng.integers(0, 256, (count, *image), dtype=np.uint8),
        y_train=rng.integers(0, 2, count), x_test=np.empty((0, *image), np.uint8), y_test=np.empty(0, np.int64),
    )  # fmt: skip
    place = folder / "plan.toml"
    place.write_text(_PLAN.format(
        name="rows", classes=["0", "1"], sites=rounds.sites, counts='counts = "public"' if rounds.private else "",
        model=rounds.model, rounds=number, batches=rounds.batches, asked=rounds.asked,
        privacy=_RECORD if rounds.private else "",
    ))  # fmt: skip
    return consilia.load(place)


def training_part(model: str, work: LocalWork, *, sites: int, pairs: int) -> dict[str, Json]:
    """Time the local training of one round's sites, 50 to 200 rows each, one by one and together in turns.

    Args:
        model: logistic or mlp.
        work: What each site does.
        sites: Sites a round.
        pairs: Rounds to train both ways, after one that is not counted.
    """
    width = 16 if model == "logistic" else 22
    flat = FlatModel(build(model, input_shape=(width,), classes=2, hidden=(64,), seed=1))
    start = flat.get()
    times: tuple[list[Moment], list[Moment]] = ([], [])
    ways: tuple[Way, Way] = (_one_by_one, train_together)
    apart = moved = 0.0
    for number in range(pairs + 1):
        found: list[Sequence[object]] = []
        for way, train in enumerate(ways):
            tasks = [_task(start, work, width, site, number) for site in range(sites)]
            begun = Moment.now()
            found.append(train(flat, tasks))
            if number:
                times[way].append(Moment.now() - begun)
        for one, other in zip(*found, strict=True):
            if isinstance(one, LocalResult) and isinstance(other, LocalResult):
                apart = max(apart, float(np.abs(one.delta - other.delta).max()))
                moved = max(moved, float(np.abs(one.delta).max()))
    return {
        "sites_a_round": sites, "steps": work.steps, "parameters": flat.dim, "pairs": pairs,
        "faster_cpu": _ratios(*times, "cpu"), "one_by_one_cpu_ms": _ms(times[0], "cpu"),
        "together_cpu_ms": _ms(times[1], "cpu"), "results_apart": apart, "results_moved": moved,
    }  # fmt: skip


def _one_by_one(model: FlatModel, tasks: Sequence[Task]) -> list[LocalResult]:
    return [alone(model, task) for task in tasks]


def _task(start: np.ndarray[Any, Any], work: LocalWork, width: int, site: int, number: int) -> Task:
    seed = SharedSeed.of(1000 * number + site)
    rng, secret = seed.generator(), SecretRng.reproducible_from(seed)
    rows = int(rng.integers(50, 201))
    sampling, order = secret.derive("sampling"), seed.derive("order").generator()

    def endless() -> Iterator[Any]:
        while True:
            yield from fixed_batches(rows, work.batch_size or rows, order)

    draw: Callable[[], Any] = endless().__next__
    if work.batch == "poisson":
        draw = lambda: poisson_batch(rows, work.sampling_rate or 1.0, work.batch_cap or rows, sampling)  # noqa: E731
    features = torch.from_numpy(rng.standard_normal((rows, width), dtype=np.float32))
    labels = torch.from_numpy(rng.integers(0, 2, rows))
    return Task(start, features, labels, work, secret, seed, draw, None, {})


def ledgers(folder: Path, *, sites: int, pairs: int, writers: int) -> dict[str, Json]:
    """Time what a round's ledgers take: each site reserves and commits, one after the other and several at a time.

    Args:
        folder: A fresh folder on the disk to measure.
        sites: Sites a round; each has a ledger of its own.
        pairs: Rounds each way, after one that is not counted.
        writers: Ledgers that may wait for the disk at the same time.
    """
    event, rounds = Event(1.0, 0.2, 5), 2 * pairs + 2
    stores = [SiteStore.open(folder / f"{site}.sqlite", f"site-{site}") for site in range(sites)]
    names = {store.site: _Bookkeeper(store, event) for store in stores}
    times: tuple[list[Moment], list[Moment]] = ([], [])
    try:
        for store in stores:
            allotment = Allotment("run", "nobody", ((event, rounds),), 10.0, 1e-5, Adjacency.ADD_REMOVE, "server")
            store.allot(allotment, fingerprint="rows", limit=None)
        for number in range(rounds):
            transport = InCohort(names, _NoTraining(), lambda: 0.0, writers=(1, writers)[number % 2])
            begun = Moment.now()
            for name in names:
                transport.send(name, str(number).encode())
            answers = list(transport.events(1.0))
            if number > 1:
                times[number % 2].append(Moment.now() - begun)
            if len(answers) != sites:
                raise RuntimeError("a ledger did not answer")
    finally:
        for store in stores:
            store.close()
    return {
        "sites_a_round": sites, "writers": writers, "pairs": pairs, "durable_commits_a_round": 2 * sites,
        "faster_wall": _ratios(*times, "wall"), "one_by_one_wall_ms": _ms(times[0], "wall"),
        "together_wall_ms": _ms(times[1], "wall"), "one_by_one_cpu_ms": _ms(times[0], "cpu"),
        "together_cpu_ms": _ms(times[1], "cpu"),
    }  # fmt: skip


class _Bookkeeper:
    """A site that has nothing to do but to keep its ledger."""

    def __init__(self, store: SiteStore, event: Event) -> None:
        self._store, self._event = store, event

    def begin(self, frame: bytes) -> bytes:
        number = int(frame) + 1
        hold = self._store.reserve("run", number, "update", self._event, reuse_open=False)
        self._store.commit(hold, release=bytes(400), model_digest="0" * 64, local_state=None)
        return frame

    def finish(self, pending: Pending, outcome: Outcome) -> bytes:
        raise NotImplementedError


class _NoTraining:
    at_once = 1 << 30

    def compute(self, pending: Sequence[Pending]) -> list[Outcome]:
        return []


def _ratios(above: Sequence[Moment], below: Sequence[Moment], clock: str) -> dict[str, float]:
    return quartiles([getattr(a, clock) / getattr(b, clock) for a, b in zip(above, below, strict=True)])


def _ms(times: Sequence[Moment], clock: str) -> dict[str, float]:
    return quartiles([1e3 * getattr(moment, clock) for moment in times])
