"""Faults of the software, each of which breaks a promise; a test sows one, and a check must find it."""

from typing import Any

import numpy as np
import pytest
from tests.promises.fleet import Fresh

from consilia.aggregate.admission import Gate
from consilia.aggregate.optimizer import ServerOptimizer
from consilia.aggregate.rule import WeightedMean
from consilia.core import wire
from consilia.core.errors import ProtocolError
from consilia.core.randomness import SecretRng
from consilia.core.update import Bytes, ProtocolMessage, Release, Vector
from consilia.pipeline import codec
from consilia.rounds import exchange, tasks
from consilia.rounds import site as sites
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


def two_transactions(patch: Patch) -> None:
    """The model of a round is written down, then the rest of it."""
    commit = Journal.commit_round

    def split(self: Journal, round: int, *, state: Any, record: Any, charges: Any) -> None:
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


def keeps_every_answer(patch: Patch) -> None:
    """The coordinator copies each site's whole answer, and keeps it until the round is over."""
    fault = Gate._fault

    def copies(self: Any, sender: str, item: Release | ProtocolMessage) -> str | None:
        reason = fault(self, sender, item)
        if reason is None:
            self.admitted[sender] = bytes(self.admitted[sender])
        return reason

    patch.setattr(Gate, "_fault", copies)


def keeps_every_vector(patch: Patch) -> None:
    """The coordinator keeps what it added, for as long as it lives."""
    add, added = WeightedMean.add, list[Vector]()

    def remembers(self: Any, acc: Any, vector: Vector, weight: float, factor: float = 1.0) -> None:
        add(self, acc, vector, weight, factor)
        added.append(vector.copy())

    patch.setattr(WeightedMean, "add", remembers)


def reads_any_version(patch: Patch) -> None:
    real = wire._PREFIX

    class Lenient:
        size = real.size

        def unpack_from(self, frame: Bytes) -> tuple[bytes, int, int, int]:
            magic, _, kind, size = real.unpack_from(frame)
            return magic, wire.VERSION, kind, size

        def pack(self, *fields: bytes | int) -> bytes:
            return real.pack(*fields)

    patch.setattr(wire, "_PREFIX", Lenient())


def trains_any_length(patch: Patch) -> None:
    patch.setattr(sites, "unpack_vector", lambda payload, dim, who: np.frombuffer(payload, "<f4")[:dim])


def takes_any_length(patch: Patch) -> None:
    patch.setattr(codec, "unpack_vector", lambda payload, dim, who: np.frombuffer(payload, "<f4")[:dim])


def works_for_any_plan(patch: Patch) -> None:
    patch.setattr(sites, "require_agreed", lambda *_: None)


def names_no_values(patch: Patch) -> None:
    """What does not fit is refused, and nobody learns why."""
    patch.setattr(tasks, "refusal", lambda site, *_, **__: ProtocolError.of(
        f"site {site}", needs="another task", got="this one", hint="",
    ))  # fmt: skip
