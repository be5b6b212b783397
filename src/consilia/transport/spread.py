"""Coordinator and sites in one process, whose training is done elsewhere: by many workers at the same time."""

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

from consilia.core.update import Gone
from consilia.rounds.pending import Outcome, Pending
from consilia.rounds.ports import Arrival, Clock
from consilia.transport.incohort import Booking, side_by_side

_LATE = "no answer before the deadline"


class Workers(Protocol):
    """What computes booked tasks, some of them at the same time."""

    def room(self, waiting: int) -> int:
        """Return how many of the tasks that wait may be given now; 0 if nobody is free."""
        ...

    def give(self, booked: Sequence[Pending]) -> None:
        """Take over tasks; of each site one at a time."""
        ...

    def wait(self, seconds: float) -> list[tuple[Pending, Outcome]]:
        """Return what was computed as soon as something was, or somebody is free, or `seconds` passed."""
        ...

    def drop(self, sites: Collection[str]) -> None:
        """Forget the tasks of these sites: nobody waits for them any more."""
        ...


class Spread:
    """Delivers frames to sites of one process, and has what they book computed by workers.

    Args:
        sites: The sites by name.
        workers: What computes.
        clock: Monotonic seconds.
        writers: Ledgers that may wait for the disk at the same time, as those of real sites do.

    Guarantees:
        A site reserves in its own ledger before its task is given to anybody, once, however often workers are lost; its answer
        is handed over after it has sealed and committed it. A task that is not done at the deadline costs its site its turn.
    """

    def __init__(self, sites: Mapping[str, Booking], workers: Workers, clock: Clock, *, writers: int) -> None:
        self._sites = sites
        self._workers = workers
        self._clock = clock
        self._writers = writers
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._at_work: set[str] = set()
        self._answers: deque[Arrival | Gone] = deque()

    def send(self, site: str, frame: bytes) -> None:
        """Queue a frame for the site."""
        self._waiting.append((site, frame))

    def events(self, timeout: float, of: Collection[str] | None = None) -> Iterator[Arrival | Gone]:
        """Yield answers as they are computed; who is not done by the deadline is gone for this round."""
        end = self._clock() + timeout
        while self._answers or self._wanted(of):
            if not self._answers and self._clock() > end:
                self._give_up(self._wanted(of))
            while self._answers:
                yield self._answers.popleft()
            if self._clock() <= end:
                self._book(of)
                if not self._answers and self._wanted(of):
                    self._collect(of, end)

    def _wanted(self, of: Collection[str] | None) -> set[str]:
        open_ones = {site for site, _ in self._waiting} | self._at_work
        return open_ones if of is None else open_ones & set(of)

    def _book(self, of: Collection[str] | None) -> None:
        """Let sites book as long as somebody is free to compute; answers that need no computing are there at once."""
        while size := self._workers.room(len(self._waiting)):
            turn = self._turn(size, of)
            if not turn:
                return
            known = [(site, frame) for site, frame in turn if site in self._sites]
            self._answers.extend(Gone(site, "not connected") for site, _ in turn if site not in self._sites)
            begun = side_by_side(self._writers, lambda one: self._sites[one[0]].begin(one[1]), known)
            booked = []
            for (site, _), one in zip(known, begun, strict=True):
                if isinstance(one, Pending):
                    booked.append(one)
                    self._at_work.add(site)
                else:
                    self._answers.append(Arrival(site, one))
            self._workers.give(booked)

    def _turn(self, size: int, of: Collection[str] | None) -> list[tuple[str, bytes]]:
        """Take the next frames, one for a site: a second one must find the first answered."""
        turn: dict[str, bytes] = {}
        left: deque[tuple[str, bytes]] = deque()
        for site, frame in self._waiting:
            fits = len(turn) < size and (of is None or site in of) and site not in turn and site not in self._at_work
            if fits:
                turn[site] = frame
            else:
                left.append((site, frame))
        self._waiting = left
        return list(turn.items())

    def _collect(self, of: Collection[str] | None, end: float) -> None:
        """Wait for workers; those who are free get the next tasks before the answers of the others are sealed."""
        computed = self._workers.wait(max(0.0, end - self._clock()))
        if self._clock() <= end:
            self._book(of)
        sealed = side_by_side(self._writers, lambda one: self._sites[one[0].task.site].finish(*one), computed)
        late = self._clock() > end
        for (pending, _), answer in zip(computed, sealed, strict=True):
            site = pending.task.site
            self._at_work.discard(site)
            wanted = of is None or site in of
            self._answers.append(Gone(site, _LATE) if late and wanted else Arrival(site, answer))

    def _give_up(self, sites: set[str]) -> None:
        self._workers.drop(sites & self._at_work)
        self._at_work -= sites
        self._waiting = deque(item for item in self._waiting if item[0] not in sites)
        self._answers.extend(Gone(site, _LATE if site in self._sites else "not connected") for site in sorted(sites))
