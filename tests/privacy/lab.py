"""The whole product in one place: real plans, sites, ledgers and bytes, with every frame kept and nothing replaced but what a
test replaces on purpose.
"""

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from consilia.aggregate.rule import WeightedMean
from consilia.core.randomness import SecretRng
from consilia.core.update import Gone, ProtocolMessage, Release
from consilia.core.wire import decode
from consilia.crypto.attestation.attester import Attester
from consilia.data.table import Table
from consilia.federation.assemble import entropy_of
from consilia.federation.one_site import work_of
from consilia.federation.simulation import Prepared, Simulation, prepare
from consilia.federation.sums import gatherer_of
from consilia.plan.load import from_text
from consilia.plan.schema import Plan
from consilia.rounds.coordinator import Coordinator, server_optimizer
from consilia.rounds.learner import TorchLearner
from consilia.rounds.ports import Arrival, Trained
from consilia.rounds.rows import SiteRows
from consilia.rounds.state import TrainingState, from_bytes, to_pieces
from consilia.store.journal import Journal

Vector = NDArray[Any]
SITES = ("Cleveland", "Hungary", "Switzerland", "VA Long Beach")
TRAINING_ROWS = {"Cleveland": 199, "Hungary": 172, "Switzerland": 30, "VA Long Beach": 85}
FEDSGD = 'algorithm = "fedsgd"\nbatch = "full"'

_TEXT = """
[run]
name = "lab"
reproducible = {reproducible}
[data]
source = "heart"
split = "exact"
test_fraction = 0.34
[sites]
{sites}
[model]
{model}
[training]
rounds = {rounds}
{training}
[privacy]
{privacy}
[aggregation]
{aggregation}
[evaluation]
{evaluation}
[ledger]
{ledger}
[secure_sum]
{secure}
"""


def privacy(unit: str, noise: str, *, z: float = 1.0, clip: float = 1.0, more: str = "") -> str:
    return (
        f'unit = "{unit}"\nnoise = "{noise}"\nnoise_multiplier = {z}\nclip_norm = {clip}\ndelta = 1e-3\n'
        f'delta_reason = "a test"\n{more}'
    )


def counts(**more: int) -> str:
    """Registered numbers above what the sites hold: neighbours with a row more agree on the same plan."""
    registered = {site: TRAINING_ROWS[site] + 1 for site in SITES} | more
    return "counts = { " + ", ".join(f'"{site}" = {number}' for site, number in registered.items()) + " }"


def plan_of(
    *, rounds: int = 1, sites: str = 'counts = "public"', model: str = "", training: str = FEDSGD, protect: str,
    aggregation: str = "", evaluation: str = 'metrics = "hidden"', ledger: str = "", reproducible: bool = True,
    secure: str = "",
) -> Plan:  # fmt: skip
    return from_text(_TEXT.format(
        rounds=rounds, sites=sites, model=model, training=training, privacy=protect, aggregation=aggregation,
        evaluation=evaluation, ledger=ledger, reproducible=str(reproducible).lower(), secure=secure,
    ))  # fmt: skip


@contextmanager
def noise(value: float) -> Iterator[None]:
    """Every normal draw becomes this number: 0 silences the noise, 1 shows its standard deviation."""
    with patch.object(SecretRng, "normal", lambda _self, size: np.full(size, float(value))):
        yield


@dataclass(frozen=True)
class Sent:
    """A frame on the wire, and the task it belongs to."""

    site: str
    task: str
    round: int
    frame: bytes


class Wiretap:
    """The in-process transport, listened to; answers of `missing` sites are lost after they left, but not what
    they say in other steps of a secure sum.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.up: list[Sent] = []
        self.down: list[Sent] = []
        self.missing: set[str] = set()
        self._tasks: dict[str, tuple[str, int]] = {}

    def send(self, site: str, frame: bytes) -> None:
        task = decode(frame, who="wiretap")
        assert isinstance(task, ProtocolMessage)
        self._tasks[site] = (task.kind, task.round)
        self.down.append(Sent(site, *self._tasks[site], frame))
        self.inner.send(site, frame)

    def events(self, timeout: float, of: Collection[str] | None = None) -> Iterator[Arrival | Gone]:
        for event in self.inner.events(timeout, of):
            if isinstance(event, Arrival):
                self.up.append(Sent(event.site, *self._tasks[event.site], bytes(event.frame)))
                if event.site in self.missing and self._tasks[event.site][0] != "sum":
                    yield Gone(event.site, "lost")
                    continue
            yield event


class Canned:
    """A learner whose update a test chose: what local training might come to, NaN included."""

    def __init__(self, vector: Vector | None) -> None:
        self.vector = vector

    def train(self, *_: object) -> Trained:
        if self.vector is None:
            raise RuntimeError("this site's training died")
        return Trained(np.asarray(self.vector, np.float32), {}, None)


class Lab:
    """A coordinator and its sites on real stores; `rows` replaces what named sites hold."""

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        *,
        rows: Mapping[str, SiteRows] | None = None,
        run: str = "lab",
        resume: bool = False,
        attester: Attester | None = None,
    ) -> None:
        self.plan, self.home, self.run_name = plan, folder / "home", run
        made = prepare(plan, folder)
        self.prepared: Prepared = replace(made, rows={**made.rows, **(rows or {})})
        self.simulation = Simulation(self.prepared, run=run, home=self.home)
        self.simulation.admit()
        try:
            path = folder / f"{run}.sqlite"
            if resume:
                self.journal = Journal.open(path)
                state = from_bytes(self.journal.state)
            else:
                initial = self.prepared.initial
                state = TrainingState(
                    initial, moments=server_optimizer(self.prepared.run_plan.phases[0].plan).init(initial.size)
                )
                if plan.training.scaffold:
                    state.control = np.zeros_like(initial)
                self.journal = Journal.create(
                    path, run=run, plan_json="{}", digest=self.prepared.run_plan.digest, state=to_pieces(state)
                )
        except BaseException:
            self.simulation.close()
            raise
        self.wire = Wiretap(self.simulation.transport)
        entropy = entropy_of(plan)
        gatherer = gatherer_of(
            self.prepared.run_plan, replace(self.simulation.means(attester), transport=self.wire), run=run,
            entropy=entropy, records=self.journal.records, pipelines=self.prepared.pipelines,
        )  # fmt: skip
        self.coordinator = Coordinator(
            self.prepared.run_plan, run=run, state=state, pipelines=self.prepared.pipelines, transport=self.wire,
            journal=self.journal, entropy=entropy, clock=time.monotonic, gatherer=gatherer,
        )  # fmt: skip
        self.aggregates: list[Vector] = []

    def round(self, model: Vector | None = None) -> Vector | None:
        """Do the next round from this model; return its aggregate, control variate included, or None where it was skipped."""
        state = self.coordinator.state
        if model is not None:
            state.model = np.asarray(model, np.float32)
            self.trust()  # a bound on what a unit moves holds at every model, at those that a site would refuse too
        before = len(self.aggregates)
        with self._watched():
            self.coordinator._round(state.round + 1)
        return self.aggregates[-1] if len(self.aggregates) > before else None

    def train(self) -> None:
        """Run every round that is left, score the result and close, as a session does."""
        with self._watched():
            self.coordinator.train()
        self.coordinator.evaluate_result()
        self.heads = self.coordinator.close("done")

    def trust(self) -> None:
        """Let the sites take every model, as tests need that measure updates no honest training makes."""
        for site in self.simulation.sites.values():
            site._models = None

    def _watched(self) -> Any:
        finish = WeightedMean.finish

        def watched(rule: WeightedMean, acc: Any, total: Vector) -> Vector:
            self.aggregates.append(np.array(finish(rule, acc, total), np.float64))
            return finish(rule, acc, total)

        return patch.object(WeightedMean, "finish", watched)

    def hold(self, site: str, table: Table) -> None:
        """Give a site other training rows."""
        half = self.prepared.run_plan.site(site)
        self.simulation.sites[site]._learner = TorchLearner(
            self.prepared.model, table, self.prepared.rows[site].test, work_of(half, len(self.prepared.run_plan.schedule)),
            seed=self.simulation.sites[site]._learner._seed,  # type: ignore[attr-defined]
            scaffold=self.plan.training.scaffold,
        )  # fmt: skip

    def can(self, site: str, vector: Vector | None) -> None:
        """Make a site's local training come to this vector, or die."""
        self.simulation.sites[site]._learner = Canned(vector)  # type: ignore[assignment]

    def releases(self, number: int) -> dict[str, Vector]:
        """Return the vectors that left the sites in a round, as float64."""
        found: dict[str, Vector] = {}
        for sent in self.wire.up:
            item = decode(sent.frame, who="lab")
            if isinstance(item, Release) and sent.task == "train" and sent.round == number:
                found[sent.site] = np.frombuffer(item.payload, "<f4").astype(np.float64)
        return found

    def close(self) -> None:
        self.journal.close()
        self.simulation.close()


def with_row(table: Table, features: Vector, label: int) -> Table:
    """Return the table with one row more."""
    longer = table.take(np.append(np.arange(len(table)), 0))
    longer.features[-1] = np.asarray(features, np.float32)
    longer.labels[-1] = label
    return longer


def changed_row(table: Table, place: int, features: Vector, label: int) -> Table:
    """Return the table with other values in one row."""
    other = table.copy()
    other.features[place] = np.asarray(features, np.float32)
    other.labels[place] = label
    return other
