"""Sites that are asked by one call each, whatever carries it: the messages of another system."""

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator
from queue import Empty, SimpleQueue

from consilia.core.update import Gone
from consilia.rounds.ports import Arrival, Clock

Call = Callable[[str, bytes, float], bytes | None]


class Calls:
    """Delivers each frame by a call in a thread of its own.

    Args:
        sites: Who can be called.
        call: (site, frame, seconds) -> the site's answer; None where it gave none within the seconds. Asks once: who asks
            twice would have a site answer twice.
        clock: Monotonic seconds.
    """

    def __init__(self, sites: Collection[str], call: Call, clock: Clock) -> None:
        self._sites = frozenset(sites)
        self._call = call
        self._clock = clock
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._asked: dict[str, int] = {}
        self._number = 0
        self._answers: SimpleQueue[tuple[str, int, bytes | None]] = SimpleQueue()

    def send(self, site: str, frame: bytes) -> None:
        """Queue a frame for the site."""
        self._waiting.append((site, frame))

    def events(self, timeout: float, of: Collection[str] | None = None) -> Iterator[Arrival | Gone]:
        """Yield answers as they come; who has not answered by the deadline is gone for this round, and never heard later."""
        end = self._clock() + timeout
        while wanted := self._wanted(of):
            if self._clock() > end:
                self._waiting = deque(item for item in self._waiting if item[0] not in wanted)
                for site in sorted(wanted):
                    self._asked.pop(site, None)
                    yield Gone(site, "no answer before the deadline" if site in self._sites else "not connected")
                return
            yield from self._ask(wanted, end)
            try:
                site, number, answer = self._answers.get(timeout=max(0.0, end - self._clock()))
            except Empty:
                continue
            if self._asked.get(site) == number:  # else nobody waits for it any more
                del self._asked[site]
                yield Gone(site, "not connected") if answer is None else Arrival(site, answer)

    def _wanted(self, of: Collection[str] | None) -> set[str]:
        everybody = {site for site, _ in self._waiting} | set(self._asked)
        return everybody if of is None else everybody & set(of)

    def _ask(self, wanted: Collection[str], end: float) -> Iterator[Gone]:
        """Call those who are free; a second frame must find the first answered."""
        left: deque[tuple[str, bytes]] = deque()
        for site, frame in self._waiting:
            if site not in wanted or site in self._asked:
                left.append((site, frame))
            elif site not in self._sites:
                yield Gone(site, "not connected")
            else:
                self._number += 1
                self._asked[site] = self._number
                work = (site, frame, self._number, end)
                threading.Thread(target=self._one, args=work, name=f"call {site}", daemon=True).start()
        self._waiting = left

    def _one(self, site: str, frame: bytes, number: int, end: float) -> None:
        answer = None
        try:
            answer = self._call(site, frame, max(0.0, end - self._clock()))
        finally:
            self._answers.put((site, number, answer))
