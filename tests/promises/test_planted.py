"""A checker that never fails is worth nothing: for each promise a fault is planted, and schedules find it."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.promises.fleet import Case, Fresh
from tests.promises.oracle import ViolationError
from tests.promises.schedules import run

from consilia.aggregate.admission import Gate
from consilia.aggregate.optimizer import ServerOptimizer
from consilia.aggregate.rule import WeightedMean
from consilia.core.errors import ProtocolError
from consilia.core.randomness import SecretRng
from consilia.core.update import ProtocolMessage, Release
from consilia.rounds import exchange
from consilia.rounds.account import Account
from consilia.rounds.secure.masked import MaskedSums
from consilia.rounds.site import Site
from consilia.secagg import server
from consilia.secagg.params import Session
from consilia.secagg.server import Deadline, Lost
from consilia.secagg.state import State
from consilia.store import kept
from consilia.store.journal import Journal
from consilia.store.ledger_store import SiteStore
from consilia.store.sessions import Sessions

Patch = pytest.MonkeyPatch
SEEDS = range(30)


@dataclass(frozen=True)
class Plant:
    """A fault of the software, the plan in which it shows, and how rough the network has to be for it."""

    promise: str
    sow: Callable[[Patch], None]
    case: Case = field(default_factory=lambda: Case("clear"))
    rates: Mapping[str, float] = field(default_factory=dict)


def two_transactions(patch: Patch) -> None:
    """The model of a round is written down, then the rest of it."""
    commit = Journal.commit_round

    def split(self: Journal, round: int, *, state: bytes, record: Any, charges: Any) -> None:
        self.stage(state)
        commit(self, round, state=state, record=record, charges=charges)

    patch.setattr(Journal, "commit_round", split)


def uncharged_scores(patch: Patch) -> None:
    reserve = Account.reserve

    def free(self: Account, round_number: int, purpose: Any, event: Any) -> Any:
        return None if purpose == "evaluation" else reserve(self, round_number, purpose, event)

    patch.setattr(Account, "reserve", free)


def answers_anew(patch: Patch) -> None:
    """A site that was asked again computes again, with fresh noise."""
    patch.setattr(Site, "_sealed", lambda *_: None)


def second_counts(patch: Patch) -> None:
    fault = Gate._fault

    def last_wins(self: Any, sender: str, item: Any) -> str | None:
        self.admitted.pop(sender, None)
        return fault(self, sender, item)

    patch.setattr(Gate, "_fault", last_wins)


def late_counts(patch: Patch) -> None:
    def lenient(self: Any, sender: str, item: Any) -> str | None:
        if isinstance(item, ProtocolMessage) or sender in self.admitted or sender not in self.asked:
            return "no"
        try:
            self.admitted[sender] = self.take(item.payload, sender)
        except ProtocolError:
            return "no"
        self.metrics[sender] = dict(item.metrics)
        self.dropped.pop(sender, None)
        return None

    patch.setattr(Gate, "_fault", lenient)


def order_matters(patch: Patch) -> None:
    def add(self: Any, acc: Any, vector: Any, weight: float, factor: float = 1.0) -> None:
        acc.total[:] = (acc.total.astype(np.float32) + np.float32(weight) * vector).astype(np.float64)
        acc.weight += weight

    patch.setattr(WeightedMean, "add", add)


def garbage_stops_all(patch: Patch) -> None:
    patch.setattr(exchange, "ProtocolError", ZeroDivisionError)  # what `decode` raises is not caught


def late_costs_its_site(patch: Patch) -> None:
    read = MaskedSums._read

    def harsh(self: Any, session: Session, site: str, item: Release | ProtocolMessage) -> Any:
        return read(self, session, site, item) or Lost(site, "answered in another session")

    patch.setattr(MaskedSums, "_read", harsh)


def waits_for_all(patch: Patch) -> None:
    step = server.step
    patch.setattr(
        server, "step", lambda state, event: (state, []) if isinstance(event, Deadline) else step(state, event)
    )


def no_deadline(patch: Patch) -> None:
    ask = exchange.exchange
    patch.setattr(exchange, "exchange", lambda *args, **rest: ask(*args, **{**rest, "timeout": 1e6}))


def no_end(patch: Patch) -> None:
    patch.setattr(Journal, "finish", lambda *_: None)


def diverges(patch: Patch) -> None:
    step = ServerOptimizer.step

    def away(self: Any, model: Any, update: Any, state: Any) -> Any:
        moved, moments = step(self, model, update, state)
        return moved * np.float32(np.nan), moments

    patch.setattr(ServerOptimizer, "step", away)
    patch.setattr(np, "isfinite", lambda _: np.array([True]))


def opens_for_two(patch: Patch) -> None:
    patch.setattr(Session, "threshold", 2)


def labels_are_enough(patch: Patch) -> None:
    """Secret randomness that follows from what it is for: the same again after a restart."""
    stream = Fresh.stream

    def same(self: Any, *labels: str | int) -> SecretRng:
        stream(self, *labels)
        key = (repr(labels).encode() * 4)[:32].ljust(32)
        self.keys[-1] = (labels, key)
        return SecretRng(key)

    patch.setattr(Fresh, "stream", same)


def one_vector_in_two_sums(patch: Patch) -> None:
    patch.setattr(State, "masked", False)
    patch.setattr(Sessions, "keep", lambda *_: None)
    patch.setattr(Site, "_sealed", lambda *_: None)


def keeps_secrets(patch: Patch) -> None:
    patch.setattr(Sessions, "forget", lambda *_: None)


def newest_state(patch: Patch) -> None:
    """A site goes on from what it kept of any round, counted or not."""
    get = kept.get_state
    patch.setattr(kept, "get_state", lambda connection, who, run, round: get(connection, who, run=run, round=10**6))


def forgets_its_state(patch: Patch) -> None:
    patch.setattr(SiteStore, "local_state", lambda *_: None)


PLANTS = [
    Plant("P1", two_transactions, rates={"kill coordinator": 0.05}),
    Plant("P2", uncharged_scores, Case("dp")),
    Plant("P3", answers_anew, Case("dp"), {"kill coordinator": 0.05}),
    Plant("P5", second_counts, rates={"another body": 0.3}),
    Plant("P4", late_counts, rates={"delay": 0.2}),
    Plant("P5", order_matters),
    Plant("P6", garbage_stops_all, rates={"corrupt": 0.1}),
    Plant("P6", late_costs_its_site, Case("masks"), {"repeat": 0.2}),
    Plant("P7", waits_for_all, Case("masks"), {"drop": 0.05}),
    Plant("P7", no_deadline, rates={"drop": 0.05}),
    Plant("P8", no_end),
    Plant("P9", diverges),
    Plant("P10", opens_for_two, Case("masks"), {"drop": 0.1}),
    Plant("P11", labels_are_enough, Case("dp"), {"kill site": 0.05, "kill coordinator": 0.05}),
    Plant("P11", labels_are_enough, Case("masks"), {"kill coordinator": 0.03}),
    Plant("P11", one_vector_in_two_sums, Case("masks"), {"kill coordinator": 0.05}),
    Plant("P11", keeps_secrets, Case("masks-dp")),
    Plant("P14", newest_state, rates={"drop": 0.2}),
    Plant("P14", forgets_its_state),
]  # fmt: skip


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: f"{plant.promise}-{plant.sow.__name__}")
def test_a_planted_fault_is_found(plant: Plant, place: Path, shelf: Path, monkeypatch: Patch) -> None:
    logging.getLogger("consilia.site").setLevel(logging.CRITICAL)
    run(0, place / "run", shelf, plant.case, {"drop": 0.01})  # as it is, it holds
    plant.sow(monkeypatch)
    found: dict[str, str] = {}
    for seed in SEEDS:
        try:
            run(seed, place / "run", shelf, plant.case, plant.rates)
        except ViolationError as violation:
            found[violation.promise] = f"schedule {seed}: {violation}"
        if plant.promise in found:  # a fault may break other promises on the way
            return
    raise AssertionError(f"no schedule found it: {found}")
