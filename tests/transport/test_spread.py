"""The in-process transport whose tasks are computed elsewhere: order, deadlines, and who is waited for."""

from collections.abc import Collection, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pytest

from consilia.core.randomness import SecretRng
from consilia.core.update import Gone, ProtocolMessage
from consilia.rounds.pending import Outcome, Pending
from consilia.rounds.ports import Arrival, Score
from consilia.transport.spread import Spread


class Books:
    """A site that books what begins with "work" and answers all else at once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.booked: list[bytes] = []

    def begin(self, frame: bytes) -> bytes | Pending:
        if not frame.startswith(b"work"):
            return b"at once " + frame
        self.booked.append(frame)
        task = ProtocolMessage("train", self.name, 1, {})
        learner: Any = None
        return Pending(task, "", None, learner, np.empty(0, np.float32), None, SecretRng(bytes(32)))

    def finish(self, pending: Pending, outcome: Outcome) -> bytes:
        assert isinstance(outcome, Score)
        return b"%d" % outcome.rows


class Desk:
    """Workers that end their tasks last come, first served, one at each call; those of `hangs` never."""

    def __init__(self, clock: "Clock", size: int = 2, hangs: Collection[str] = ()) -> None:
        self.clock, self.size, self.hangs = clock, size, hangs
        self.held: list[Pending] = []
        self.dropped: list[str] = []

    def room(self, waiting: int) -> int:
        return min(waiting, self.size - len(self.held))

    def give(self, booked: Sequence[Pending]) -> None:
        self.held.extend(booked)

    def wait(self, seconds: float) -> list[tuple[Pending, Outcome]]:
        for place in reversed(range(len(self.held))):
            if self.held[place].task.site not in self.hangs:
                self.clock.now += 1.0
                return [(self.held.pop(place), Score(0, 0.0, int(self.clock.now)))]
        self.clock.now += seconds + 0.001
        return []

    def drop(self, sites: Collection[str]) -> None:
        self.dropped += sorted(sites)
        self.held = [pending for pending in self.held if pending.task.site not in sites]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def office(size: int = 2, hangs: Collection[str] = ()) -> tuple[Spread, Desk, dict[str, Books]]:
    clock = Clock()
    desk, sites = Desk(clock, size, hangs), {name: Books(name) for name in "abc"}
    return Spread(sites, desk, clock, writers=1), desk, sites


def test_answers_come_as_they_are_ready_and_each_site_is_served_in_turn() -> None:
    transport, _, sites = office()
    for site, frame in (("a", b"work"), ("b", b"word"), ("c", b"work"), ("a", b"work 2"), ("x", b"work")):
        transport.send(site, frame)
    found = list(transport.events(100.0))
    assert sorted(found, key=repr) == [
        Arrival("a", b"2"), Arrival("a", b"3"), Arrival("b", b"at once word"), Arrival("c", b"1"), Gone("x", "not connected")
    ]  # fmt: skip
    assert found.index(Arrival("c", b"1")) < found.index(Arrival("a", b"2"))
    assert sites["a"].booked == [b"work", b"work 2"]


def test_who_hangs_is_gone_at_the_deadline_and_nobody_else() -> None:
    transport, desk, sites = office(hangs={"b"})
    for site in "abc":
        transport.send(site, b"work")
    assert list(transport.events(10.0)) == [
        Arrival("a", b"1"), Arrival("c", b"2"), Gone("b", "no answer before the deadline")
    ]  # fmt: skip
    assert desk.dropped == ["b"]
    transport.send("b", b"word")
    assert list(transport.events(10.0)) == [Arrival("b", b"at once word")]
    assert [len(site.booked) for site in sites.values()] == [1, 1, 1]


def test_those_whose_turn_never_came_book_nothing() -> None:
    transport, desk, sites = office(size=1, hangs={"a"})
    for site in "abc":
        transport.send(site, b"work")
    assert list(transport.events(10.0)) == [Gone(site, "no answer before the deadline") for site in "abc"]
    assert [len(site.booked) for site in sites.values()] == [1, 0, 0]
    assert desk.dropped == ["a"]


@pytest.mark.parametrize("hangs", [(), ("c",)])
def test_what_others_were_sent_stays_and_who_stops_early_loses_nothing(hangs: Collection[str]) -> None:
    transport, _, _ = office(hangs=hangs)
    for site in "abc":
        transport.send(site, b"work")
    assert list(transport.events(10.0, of={"b"})) == [Arrival("b", b"1")]
    assert list(islice(transport.events(10.0, of={"a", "c"}), 1)) == [Arrival("a" if hangs else "c", b"2")]
    last = Gone("c", "no answer before the deadline") if hangs else Arrival("a", b"3")
    assert list(transport.events(10.0)) == [last]
    assert list(transport.events(10.0)) == []
