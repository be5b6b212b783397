"""Runs whose rounds wait for no one, on a clock of their own: real sites, real stores, stated delays."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilia.core.update import ProtocolMessage
from consilia.core.wire import decode
from consilia.federation.assemble import entropy_of
from consilia.federation.conduct import first_state, pin
from consilia.federation.simulation import Simulation, prepare
from consilia.federation.sums import gatherer_of
from consilia.plan.load import from_text
from consilia.plan.schema import Plan
from consilia.rounds.coordinator import Coordinator
from consilia.rounds.state import from_bytes, to_pieces
from consilia.store.journal import Journal
from consilia.transport.virtual import Virtual

SITES = ("Cleveland", "Hungary", "Switzerland", "VA Long Beach")
DELAYS = dict(zip(SITES, (1.0, 1.0, 2.0, 4.0), strict=True))
QUICK = 0.001
HEART = """
[run]
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
mode = "{mode}"
ready = {ready}
deadline_seconds = 600
{aggregation}
[secure_sum]
{secure}
[evaluation]
metrics = "{metrics}"
"""
FEDAVG = 'algorithm = "fedavg"\nbatch = "full"\nlocal_steps = 2\nlearning_rate = 0.1'
FEDSGD = 'algorithm = "fedsgd"\nbatch = "full"\nserver_learning_rate = 0.1'
COMMON = 'noise_multiplier = {z}\ndelta = 1e-3\ndelta_reason = "a test"\nclip_norm = {clip}\nunit = "{unit}"\nnoise = "{noise}"'


def claim(unit: str, noise: str, *, z: float = 1.0, clip: float = 1.0) -> str:
    return COMMON.format(unit=unit, noise=noise, z=z, clip=clip)


def slow(
    *, mode: str = "two-phase", ready: int = 3, rounds: int = 6, training: str = FEDAVG, privacy: str = 'unit = "none"',
    aggregation: str = "", secure: str = "", metrics: str = "hidden", reproducible: bool = False,
) -> Plan:  # fmt: skip
    """Return a plan on the built-in Heart table whose rounds wait for no one."""
    return from_text(HEART.format(
        mode=mode, ready=ready, rounds=rounds, training=training, privacy=privacy, aggregation=aggregation, secure=secure,
        metrics=metrics, reproducible=str(reproducible).lower(),
    ))  # fmt: skip


MASKS = 'mode = "masks"'


class Stage:
    """A coordinator and its sites; `delays` says how long each site takes for an update, all else is quick.

    `away` holds sites that are not connected; it may be changed while a run goes on.
    """

    def __init__(
        self, plan: Plan, folder: Path, delays: Mapping[str, float] = DELAYS, *, run: str = "stage", resume: bool = False,
        frames: Callable[[str, bytes], None] = lambda _site, _frame: None,
    ) -> None:  # fmt: skip
        self.prepared = prepare(plan, folder)
        self.plan = self.prepared.run_plan
        pin(plan, self.prepared.model.dim)
        self.simulation = Simulation(self.prepared, run=run, home=folder)
        self.simulation.admit()
        self.run = run
        self.delays = dict(delays)
        self.frames = frames
        self.transport = Virtual({name: self._answers(name) for name in self.simulation.sites}, self._delay)
        if resume:
            self.journal = Journal.open(folder / f"{run}.sqlite")
            state = from_bytes(self.journal.state)
        else:
            state = first_state(self.prepared)
            self.journal = Journal.create(
                folder / f"{run}.sqlite", run=run, plan_json="{}", digest=self.plan.digest, state=to_pieces(state)
            )
        entropy = entropy_of(plan)
        means = replace(self.simulation.means(None), transport=self.transport)
        self.gatherer: Any = gatherer_of(
            self.plan,
            means,
            run=run,
            entropy=entropy,
            records=self.journal.records,
            pipelines=self.prepared.pipelines,
        )
        self.coordinator = Coordinator(
            self.plan, run=run, state=state, pipelines=self.prepared.pipelines, transport=self.transport, journal=self.journal,
            entropy=entropy, clock=self.transport.clock, gatherer=self.gatherer,
        )  # fmt: skip

    def _answers(self, name: str) -> Callable[[bytes], bytes]:
        def answer(frame: bytes) -> bytes:
            self.frames(name, frame)
            return self.simulation.sites[name].handle(frame)

        return answer

    def waiting(self, site: str) -> int | None:
        """Return the version that the update waiting at a site began at; None where none waits."""
        store = self.simulation.sites[site]._store
        found = None if store is None else store.preparations.found(self.run)
        return None if found is None else found.version

    def _delay(self, site: str, kind: str) -> float:
        waits = kind == "prepare" and self.waiting(site) is not None
        return self.delays.get(site, 1.0) if kind in ("prepare", "train") and not waits else QUICK

    def train(self) -> list[dict[str, Any]]:
        """Run to the end; return the records."""
        self.coordinator.train()
        return self.journal.records()

    def charged(self, site: str) -> int:
        """Return how many updates a site's ledger has charged."""
        store = self.simulation.sites[site]._store
        assert store is not None
        return sum(count for _, count in store.charged(self.run))

    @property
    def model(self) -> NDArray[np.float32]:
        return self.coordinator.state.model

    def close(self) -> None:
        self.journal.close()
        self.simulation.close()


def body(frame: bytes) -> ProtocolMessage:
    item = decode(frame, who="test")
    assert isinstance(item, ProtocolMessage), item
    return item
