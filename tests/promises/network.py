"""A network in virtual time that loses, delays, repeats, replays, changes and reorders, between processes that are killed.

It implements `rounds.ports.Transport`. Waiting costs no time here: an hour without an answer is an addition.
"""

import heapq
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

from tests.promises.chance import Chance
from tests.promises.fleet import DEADLINE
from tests.promises.oracle import require

from consilia.core.update import Gone, ProtocolMessage, Release
from consilia.core.wire import decode, encode
from consilia.rounds.ports import Arrival

MOST_EXCHANGES = 1000  # a run of four rounds, killed four times, has about a hundred


class KilledError(BaseException):
    """Stands for SIGKILL: no `except Exception` of a site or coordinator survives it."""


class Listener(Protocol):
    """Hears of everything that left a process, before the network does anything to it."""

    def told(self, site: str, task: ProtocolMessage) -> None: ...

    def left(self, site: str, task: ProtocolMessage, answer: Release | ProtocolMessage, frame: bytes) -> None: ...

    def hurt(self, site: str) -> None: ...


@dataclass(order=True)
class _Event:
    at: float
    order: int
    what: str = field(compare=False)
    site: str = field(compare=False)
    frame: bytes = field(compare=False)
    ends: int = field(compare=False, default=0)  # number of the task, or of the task that this answers
    late: bool = field(compare=False, default=False)


class Network:
    """Owns every frame under way, and the time.

    Args:
        chance: Decides.
        handle: (site, frame) -> its answer; None where the site is down or was killed while it answered.
        listener: Hears what leaves.
    """

    def __init__(self, chance: Chance, handle: Callable[[str, bytes], bytes | None], listener: Listener) -> None:
        self.now = 0.0
        self.exchanges = 0
        self._chance = chance
        self._handle = handle
        self._listener = listener
        self._events: list[_Event] = []
        self._sent = self._order = 0
        self._open: dict[int, str] = {}
        self._old: list[tuple[str, bytes]] = []
        self._inbox: dict[tuple[str, int, bytes], bytes] = {}

    def clock(self) -> float:
        return self.now

    def coordinator_died(self) -> None:
        """Nobody waits for an answer any more; what is under way goes on."""
        self._open = {}
        # A site that answers with two contents is hostile, and who hears the second one first may count that one. Here the
        # second one follows the first closely, so that it is known which one counts.
        self._events = [event for event in self._events if event.what != "second"]
        heapq.heapify(self._events)

    def send(self, site: str, frame: bytes) -> None:
        self._sent += 1
        self._open[self._sent] = site
        task = decode(frame, who="network")
        assert isinstance(task, ProtocolMessage)
        self._listener.told(site, task)
        where = f"{task.kind} {task.body.get('stage', '')} of round {task.round} to {site}"
        if self._lost(where, site, self._sent):
            return
        if self._chance.happens("corrupt", where):
            self._listener.hurt(site)
            frame = self._mangled(frame)
        took = self._late(where, site)
        self._push("task", site, frame, took, self._sent, late=took > DEADLINE / 20)
        if self._chance.happens("repeat", where):
            self._push("task", site, frame, self._chance.between(0, DEADLINE), self._sent, late=True)

    def events(self, timeout: float, of: Collection[str] | None = None) -> Iterator[Arrival | Gone]:
        """As `Transport.events`, for a coordinator that waits for all it sent to; also what came late is handed over."""
        self.exchanges += 1
        require(self.exchanges < MOST_EXCHANGES, "P7", "the coordinator asks without end")
        end = self.now + timeout
        while self._open and self._events and self._events[0].at <= end:
            event = heapq.heappop(self._events)
            self.now = max(self.now, event.at)
            if event.what == "task":
                self._delivered(event)
                continue
            asked = self._open.pop(event.ends, None)
            if event.what == "gone" and asked:
                yield Gone(event.site, "the connection is gone")
            elif event.what != "gone":
                yield Arrival(event.site, event.frame)
        if self._open:
            self.now = end
        self._open = {}

    def _delivered(self, event: _Event) -> None:
        task = _read(event.frame)
        # As a site's inbox does: a message that came before is not handled again, its answer is sent again.
        key = event.site, event.ends, event.frame
        answer = self._inbox.get(key)
        if answer is None:
            if event.late:  # a task that others overtook may cost its own site the round it comes in
                self._listener.hurt(event.site)
            answer = self._handle(event.site, event.frame)
        if answer is None:
            self._listener.hurt(event.site)
            return
        self._inbox[key] = answer
        item = decode(answer, who="network")
        if task is not None:
            self._listener.left(event.site, task, item, answer)
        where = (
            f"{item.kind if isinstance(item, ProtocolMessage) else 'release'} of round {item.round} from {event.site}"
        )
        if self._chance.happens("replay", where) and self._old:
            self._push("answer", *self._old[self._chance.below(len(self._old))], self._chance.between(0, DEADLINE))
        self._old.append((event.site, answer))
        if self._lost(where, event.site, event.ends):
            return
        if self._chance.happens("corrupt", where):
            self._listener.hurt(event.site)
            self._push("answer", event.site, self._mangled(answer), self._jitter(), event.ends)
            return
        took = self._late(where, event.site)
        self._push("answer", event.site, answer, took, event.ends)
        if self._chance.happens("repeat", where):
            self._push("answer", event.site, answer, self._chance.between(0, 3 * DEADLINE), event.ends)
        if isinstance(item, Release) and item.payload and self._chance.happens("another body", where):
            # Right behind the first one, from the same site: the same key with another content.
            other = encode(replace(item, payload=_other(bytes(item.payload))))
            self._push("second", event.site, other, took, event.ends)

    def _push(self, what: str, site: str, frame: bytes, after: float, ends: int = 0, *, late: bool = False) -> None:
        self._order += 1
        heapq.heappush(self._events, _Event(self.now + after, self._order, what, site, frame, ends, late))

    def _jitter(self) -> float:
        return self._chance.between(0, DEADLINE / 20)

    def _late(self, where: str, site: str) -> float:
        if self._chance.happens("delay", where):
            self._listener.hurt(site)
            return self._chance.between(0, 3 * DEADLINE)
        return self._jitter()

    def _lost(self, where: str, site: str, ends: int) -> bool:
        if self._chance.happens("gone", where):
            self._listener.hurt(site)
            self._push("gone", site, b"", self._jitter(), ends)
            return False  # a false alarm: what was under way may come all the same
        lost = self._chance.happens("drop", where)
        if lost:
            self._listener.hurt(site)
        return lost

    def _mangled(self, frame: bytes) -> bytes:
        """Return a frame as a broken peer makes it. A bit that flips in a payload is for TLS to find: it never gets here."""
        way = self._chance.below(3)
        if way == 0:
            return frame[: self._chance.below(len(frame))]
        if way == 1:
            return bytes(self._chance.below(256) for _ in range(40))
        place = self._chance.below(10)
        return frame[:place] + bytes([frame[place] ^ (1 << self._chance.below(8))]) + frame[place + 1 :]


def _read(frame: bytes) -> ProtocolMessage | None:
    try:
        item = decode(frame, who="network")
    except Exception:
        return None
    return item if isinstance(item, ProtocolMessage) else None


def _other(payload: bytes) -> bytes:
    return payload[::-1] if payload[::-1] != payload else bytes(len(payload))
