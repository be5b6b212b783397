"""Real plans on the built-in Heart table, a few rounds long, with transports that can be made to misbehave."""

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path

from consilia.core.update import Gone, ProtocolMessage
from consilia.core.wire import decode
from consilia.crypto.attestation.attester import Attester
from consilia.federation.assemble import entropy_of
from consilia.federation.simulation import Simulation, prepare
from consilia.federation.sums import gatherer_of
from consilia.plan.load import from_text
from consilia.plan.schema import Plan
from consilia.rounds.coordinator import Coordinator, server_optimizer
from consilia.rounds.ports import Arrival
from consilia.rounds.state import TrainingState, to_pieces
from consilia.store.journal import Journal

HEART = """
[run]
name = "test"
reproducible = {reproducible}
[data]
source = "heart"
split = "exact"
test_fraction = 0.34
[sites]
counts = "public"
[training]
rounds = {rounds}
{training}
[privacy]
{privacy}
[aggregation]
{aggregation}
[evaluation]
metrics = "{metrics}"
{evaluation}
"""
RECORD = (
    'unit = "record"\nnoise = "site"\nnoise_multiplier = 5.0\ndelta = 1e-3\ndelta_reason = "a test"\nclip_norm = 1.0'
)
SITE = 'unit = "site"\nnoise = "server"\nnoise_multiplier = 1.0\ndelta = 1e-3\ndelta_reason = "a test"\nclip_norm = 1.0'
FEDSGD = 'algorithm = "fedsgd"\nbatch = "full"\nserver_learning_rate = 0.1'
FEDAVG = 'algorithm = "fedavg"\nbatch = "fixed"\nbatch_size = 16\nlocal_epochs = 1\nlearning_rate = 0.1'


def heart(
    *, rounds: int = 4, training: str = FEDSGD, privacy: str = RECORD, aggregation: str = "", metrics: str = "public",
    evaluation: str = "", reproducible: bool = True,
) -> Plan:  # fmt: skip
    return from_text(HEART.format(
        rounds=rounds, training=training, privacy=privacy, aggregation=aggregation, metrics=metrics, evaluation=evaluation,
        reproducible=str(reproducible).lower(),
    ))  # fmt: skip


Tamper = Callable[[str, int, bytes], list[bytes | Gone | tuple[str, bytes]]]


class Misbehaving:
    """The in-process transport with a hand in it: what a site's n-th answer becomes, and which tasks it never hears of.

    `asked` holds the last task of each site that was delivered: what an answer is to.
    """

    def __init__(self, inner: object, tamper: Tamper) -> None:
        self.inner, self.tamper = inner, tamper
        self.unheard: Callable[[str, ProtocolMessage], bool] = lambda _site, _task: False
        self.answers: dict[str, int] = {}
        self.asked: dict[str, ProtocolMessage] = {}
        self.up: list[tuple[str, bytes]] = []

    def send(self, site: str, frame: bytes) -> None:
        task = decode(frame, who="bench")
        assert isinstance(task, ProtocolMessage)
        if self.unheard(site, task):
            return
        self.asked[site] = task
        self.inner.send(site, frame)  # type: ignore[attr-defined]

    def events(self, timeout: float, of: Collection[str] | None = None) -> Iterator[Arrival | Gone]:
        for event in self.inner.events(timeout, of):  # type: ignore[attr-defined]
            if isinstance(event, Gone):
                yield event
                continue
            number = self.answers[event.site] = self.answers.get(event.site, 0) + 1
            for item in self.tamper(event.site, number, event.frame):
                if isinstance(item, Gone):
                    yield item
                elif isinstance(item, tuple):
                    yield Arrival(*item)
                else:
                    self.up.append((event.site, item))
                    yield Arrival(event.site, item)


class Bench:
    """A coordinator and its sites on real stores, taken apart so that a test can reach in."""

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        tamper: Tamper | None = None,
        run: str = "bench",
        attester: Attester | None = None,
    ) -> None:
        self.prepared = prepare(plan, folder)
        self.simulation = Simulation(self.prepared, run=run, home=folder)
        self.simulation.admit()
        state = TrainingState(
            self.prepared.initial,
            moments=server_optimizer(self.prepared.run_plan.phases[0].plan).init(self.prepared.initial.size),
        )
        self.journal = Journal.create(
            folder / f"{run}.sqlite",
            run=run,
            plan_json="{}",
            digest=self.prepared.run_plan.digest,
            state=to_pieces(state),
        )
        self.transport = Misbehaving(self.simulation.transport, tamper or (lambda _site, _n, frame: [frame]))
        entropy = entropy_of(plan)
        self.gatherer = gatherer_of(
            self.prepared.run_plan, replace(self.simulation.means(attester), transport=self.transport), run=run,
            entropy=entropy, records=list, pipelines=self.prepared.pipelines,
        )  # fmt: skip
        self.coordinator = Coordinator(
            self.prepared.run_plan, run=run, state=state, pipelines=self.prepared.pipelines, transport=self.transport,
            journal=self.journal, entropy=entropy, clock=time.monotonic, gatherer=self.gatherer,
        )  # fmt: skip

    def close(self) -> None:
        self.journal.close()
        self.simulation.close()
