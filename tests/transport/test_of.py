"""A round may wait for some sites alone: what others were sent stays."""

from collections.abc import Sequence
from itertools import islice

import pytest

from consilia.core.update import Gone
from consilia.rounds.pending import Outcome, Pending
from consilia.rounds.ports import Arrival, Transport
from consilia.transport.incohort import InCohort
from consilia.transport.inprocess import InProcess


class Plain:
    """A site that answers without training."""

    def begin(self, frame: bytes) -> bytes:
        return b"re " + frame

    def finish(self, pending: Pending, outcome: Outcome) -> bytes:
        raise NotImplementedError


class Nothing:
    at_once = 3

    def compute(self, pending: Sequence[Pending]) -> list[Outcome]:
        return []


TRANSPORTS: list[Transport] = [
    InProcess({name: lambda frame: b"re " + frame for name in "abc"}, lambda: 0.0),
    InCohort({name: Plain() for name in "abc"}, Nothing(), lambda: 0.0, writers=1),
]


@pytest.mark.parametrize("transport", TRANSPORTS, ids=["in process", "in cohort"])
def test_what_others_were_sent_stays(transport: Transport) -> None:
    for site in "abcd":
        transport.send(site, site.encode())
    assert list(transport.events(1.0, of={"b", "d"})) == [Arrival("b", b"re b"), Gone("d", "not connected")]
    transport.send("b", b"again")
    assert list(transport.events(1.0)) == [Arrival("a", b"re a"), Arrival("c", b"re c"), Arrival("b", b"re again")]
    assert list(transport.events(1.0)) == []


@pytest.mark.parametrize("transport", TRANSPORTS, ids=["in process", "in cohort"])
def test_who_stops_early_loses_nothing(transport: Transport) -> None:
    for site in "abcab":
        transport.send(site, site.encode())
    assert list(islice(transport.events(1.0), 3)) == [Arrival(site, b"re " + site.encode()) for site in "abc"]
    transport.send("c", b"new")
    assert list(transport.events(1.0, of={"b"})) == [Arrival("b", b"re b")]
    assert list(transport.events(1.0)) == [Arrival("a", b"re a"), Arrival("c", b"re new")]
