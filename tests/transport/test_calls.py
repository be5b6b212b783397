"""Sites that are asked by calls: order, deadlines, and answers that come too late."""

import threading
import time
from itertools import islice

from consilia.core.update import Gone
from consilia.rounds.ports import Arrival
from consilia.transport.calls import Calls

LONG = 30.0


class Hotel:
    """Answers calls; a frame that begins with "hold" is answered when its site is let go."""

    def __init__(self) -> None:
        self.doors = {name: threading.Event() for name in "abc"}
        self.busy: dict[str, int] = dict.fromkeys("abc", 0)

    def call(self, site: str, frame: bytes, seconds: float) -> bytes | None:
        self.busy[site] += 1
        assert self.busy[site] == 1  # one call at a time
        try:
            if frame.startswith(b"hold"):
                self.doors[site].wait(LONG)
            return None if frame == b"nobody" else b"re " + frame
        finally:
            self.busy[site] -= 1


def test_answers_come_as_they_are_given_and_each_site_is_asked_in_turn() -> None:
    hotel = Hotel()
    transport = Calls("abc", hotel.call, time.monotonic)
    for site, frame in (("a", b"hold"), ("a", b"next"), ("b", b"hello"), ("c", b"nobody"), ("x", b"hello")):
        transport.send(site, frame)
    events = transport.events(LONG)
    early = list(islice(events, 3))
    assert set(early) == {Gone("x", "not connected"), Arrival("b", b"re hello"), Gone("c", "not connected")}
    hotel.doors["a"].set()
    assert list(events) == [Arrival("a", b"re hold"), Arrival("a", b"re next")]


def test_who_is_late_is_gone_and_never_heard_later() -> None:
    hotel = Hotel()
    transport = Calls("abc", hotel.call, time.monotonic)
    transport.send("a", b"hold")
    transport.send("b", b"hello")
    assert list(transport.events(0.2)) == [Arrival("b", b"re hello"), Gone("a", "no answer before the deadline")]
    hotel.doors["a"].set()
    while hotel.busy["a"]:
        time.sleep(0.01)
    transport.send("a", b"new")
    assert list(transport.events(LONG)) == [Arrival("a", b"re new")]


def test_what_others_were_sent_stays_and_who_stops_early_loses_nothing() -> None:
    hotel = Hotel()
    transport = Calls("abc", hotel.call, time.monotonic)
    for site in "abc":
        transport.send(site, site.encode())
    assert list(transport.events(LONG, of={"b"})) == [Arrival("b", b"re b")]
    first = list(islice(transport.events(LONG), 1))
    assert {event.site for event in (*first, *transport.events(LONG))} == {"a", "c"}
    assert list(transport.events(LONG)) == []
