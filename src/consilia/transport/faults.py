"""Faults on demand: a transport that loses, delays, repeats, reorders and corrupts frames by a schedule known beforehand.

An operator rehearses with it: does this consortium's quorum, its deadline and its number of tolerated dropouts hold where one
message in ten goes wrong? Nothing uses it unless it is asked for.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, fields
from typing import Literal

from consilia.core.errors import PlanError
from consilia.core.randomness import SharedSeed
from consilia.core.update import Bytes, Gone
from consilia.rounds.ports import Arrival, Clock, Transport

_log = logging.getLogger("consilia.faults")
_LONGEST = 6  # deliveries that a delayed frame, or the copy of a repeated one, waits at most

Direction = Literal["down", "up"]


@dataclass(frozen=True)
class Fault:
    """What becomes of one frame.

    Attributes:
        kind: drop: it never comes. delay: it comes after others. repeat: it comes, and once more after others. reorder: it
            comes right after the next frame that goes the same way between the same ends. flip: one byte is another. cut:
            its end is missing. append: it has bytes too many.
        after: delay, repeat: how many other frames, of any site and either direction, pass before it.
        seconds: delay: how long it waits besides.
        place: flip, cut: where, as a share of its length in [0, 1).
    """

    kind: Literal["drop", "delay", "repeat", "reorder", "flip", "cut", "append"]
    after: int = 1
    seconds: float = 0.0
    place: float = 0.5


# Of a direction, a site, and the number of its frame in this direction, from 1.
Schedule = Callable[[Direction, str, int], Fault | None]


@dataclass(frozen=True)
class Rates:
    """How likely a frame meets each kind of fault; what is left of 1 passes untouched.

    Attributes:
        drop, delay, repeat, reorder, corrupt: Probabilities; corrupt is one of flip, cut and append.
    """

    drop: float = 0.0
    delay: float = 0.0
    repeat: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0

    def __post_init__(self) -> None:
        rates = [getattr(self, field.name) for field in fields(self)]
        if not (all(0 <= rate <= 1 for rate in rates) and sum(rates) <= 1 + 1e-9):
            raise PlanError.of("the rates of a rehearsal", needs="probabilities that add up to at most 1",
                               got=", ".join(map(str, rates)), hint="Lower them; 0.02 each is one frame in ten")  # fmt: skip


def seeded(seed: int, rates: Rates) -> Schedule:
    """Return a schedule that draws each frame's fault from the seed, the site and the frame's number.

    Frames of one site do not change what those of another meet: however threads interleave, the schedule is the same.
    """
    root = SharedSeed.of(seed).derive("faults")

    def draw(direction: Direction, site: str, number: int) -> Fault | None:
        # Four uniforms: which fault, how long, where, which corruption.
        uniform = root.derive(direction, site, number).generator().random(4)
        after = 1 + int(uniform[1] * _LONGEST)
        edge = 0.0
        for field in fields(rates):
            edge += getattr(rates, field.name)
            if uniform[0] < edge:
                if field.name != "corrupt":
                    return Fault(field.name, after)  # type: ignore[arg-type]
                kinds: tuple[Literal["flip", "cut", "append"], ...] = ("flip", "cut", "append")
                return Fault(kinds[int(uniform[3] * 3)], place=float(uniform[2]))
        return None

    return draw


@dataclass(frozen=True)
class _Held:
    direction: Direction
    site: str
    frame: Bytes
    passed: int  # due once so many frames have passed ...
    moment: float  # ... and this moment has come
    behind: int  # or, where not 0, right after this frame of its site and direction, or a later one


class Faulty:
    """A transport with faults in both directions between the coordinator and what carries its frames.

    A frame that waits longer than its exchange lasts comes in a later one: an answer of round r in round r + 1.

    Args:
        inner: What carries the frames.
        schedule: Which fault a frame meets.
        clock: Monotonic seconds.
        sleep: Waits for so many seconds of this clock.
    """

    def __init__(self, inner: Transport, schedule: Schedule, clock: Clock, sleep: Callable[[float], None]) -> None:
        self._inner = inner
        self._schedule = schedule
        self._clock = clock
        self._sleep = sleep
        self._seen: Counter[tuple[Direction, str]] = Counter()
        self._held: list[_Held] = []
        self._ready: list[Arrival] = []
        self._passed = 0
        self._sent = False
        _log.warning("a rehearsal: frames are lost, delayed, repeated, reordered and corrupted on purpose")

    def send(self, site: str, frame: bytes) -> None:
        """Hand a frame on, or what its fault leaves of it."""
        self._meet("down", site, frame)

    def events(self, timeout: float, of: Collection[str] | None = None) -> Iterator[Arrival | Gone]:
        """Yield what comes, as its faults leave it; frames on their way to sites may be let go meanwhile."""
        end = self._clock() + timeout
        yield from self._take()
        while True:
            self._sent = False
            for event in self._inner.events(max(0.0, end - self._clock()), of):
                if isinstance(event, Gone):
                    yield event
                else:
                    self._meet("up", event.site, event.frame)
                yield from self._take()
            due = min((one.moment for one in self._held if not one.behind and one.passed <= self._passed), default=end)
            if due < end:
                self._sleep(max(0.0, due - self._clock()))
                self._release()
                yield from self._take()
            elif not self._sent:
                return

    def _take(self) -> Iterator[Arrival]:
        while self._ready:
            yield self._ready.pop(0)

    def _meet(self, direction: Direction, site: str, frame: Bytes) -> None:
        self._seen[direction, site] += 1
        number = self._seen[direction, site]
        fault = self._schedule(direction, site, number)
        if fault is None:
            return self._let_pass(direction, site, frame, number)
        _log.info("%s: frame %d %s of %s", fault.kind, number, direction, site)
        if fault.kind == "drop":
            return None
        if fault.kind in ("flip", "cut", "append"):
            return self._let_pass(direction, site, corrupted(frame, fault), number)
        if fault.kind == "repeat":
            self._let_pass(direction, site, frame, number)
        behind = number + 1 if fault.kind == "reorder" else 0
        # A view of a file may not outlive its exchange: what waits is copied.
        held = _Held(direction, site, bytes(frame), self._passed + fault.after, self._clock() + fault.seconds, behind)
        self._held.append(held)
        return None

    def _let_pass(self, direction: Direction, site: str, frame: Bytes, number: int) -> None:
        self._hand_on(direction, site, frame)
        same = [one for one in self._held if (one.direction, one.site) == (direction, site)]
        self._free([one for one in same if 0 < one.behind <= number])
        self._release()

    def _release(self) -> None:
        now = self._clock()
        self._free([one for one in self._held if not one.behind and one.passed <= self._passed and one.moment <= now])

    def _free(self, ripe: list[_Held]) -> None:
        for held in ripe:
            self._held.remove(held)
            self._hand_on(held.direction, held.site, held.frame)

    def _hand_on(self, direction: Direction, site: str, frame: Bytes) -> None:
        self._passed += 1
        if direction == "down":
            self._sent = True
            self._inner.send(site, bytes(frame))
        else:
            self._ready.append(Arrival(site, frame))


def corrupted(frame: Bytes, fault: Fault) -> bytes:
    """Return what a fault leaves of a frame: a byte flipped, its end cut off, or bytes appended."""
    raw = bytearray(frame)
    place = int(fault.place * len(raw))
    if fault.kind == "cut":
        del raw[place:]
    elif fault.kind == "append":
        raw += b"\0" * 7
    elif raw:
        raw[place] ^= 0x20
    return bytes(raw)
