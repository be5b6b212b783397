"""Coordinator and sites in one process on a clock of their own: who is slow follows from stated delays, and nobody sleeps."""

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from consilia.core.errors import ProtocolError
from consilia.core.update import Gone, ProtocolMessage
from consilia.core.wire import decode
from consilia.rounds.ports import Arrival

Delay = Callable[[str, str], float]
"""(site, kind of task) -> seconds that the task which it begins now takes there, transfer included."""


@dataclass(order=True)
class _Work:
    """A task: under way, it is done at `moment`; `number` orders what is done at the same moment."""

    moment: float
    number: int
    site: str = field(compare=False)
    frame: bytes = field(compare=False)
    late: bool = field(default=False, compare=False)


class Virtual:
    """Delivers frames to functions of their sites, each of which does one task after another in virtual time.

    A task has its effects at the moment it is done. What the parties see of each other depends on the delays alone, so the same
    delays give the same run.

    Args:
        sites: For each site, what answers its frames; one that is not there is not connected.
        delay: How long a task takes.
    """

    def __init__(self, sites: Mapping[str, Callable[[bytes], bytes]], delay: Delay) -> None:
        self._sites = sites
        self._delay = delay
        self._now = 0.0
        self._busy: set[str] = set()
        self._queues: dict[str, deque[_Work]] = {}
        self._under_way: list[_Work] = []
        self._sent = 0

    def clock(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def send(self, site: str, frame: bytes) -> None:
        """Let a site begin a task once it has done those before."""
        self._sent += 1
        self._queues.setdefault(site, deque()).append(_Work(0.0, self._sent, site, frame))
        self._begin(site)

    def events(self, timeout: float, of: Collection[str] | None = None) -> Iterator[Arrival | Gone]:
        """Let time pass until those that are waited for have answered, or to the deadline; others' answers come as well."""
        end = self._now + timeout
        while waited := self._waited(of):
            if self._under_way[0].moment > end:
                self._now = end
                for work in waited:
                    work.late = True  # it is done all the same, and its answer goes nowhere
                    yield Gone(work.site, "no answer before the deadline")
                return
            work = heapq.heappop(self._under_way)
            self._now = work.moment
            known = work.site in self._sites
            answer = self._sites[work.site](work.frame) if known else b""
            self._busy.discard(work.site)
            self._begin(work.site)
            if not work.late:
                yield Arrival(work.site, answer) if known else Gone(work.site, "not connected")

    def _begin(self, site: str) -> None:
        queue = self._queues.get(site)
        if site in self._busy or not queue:
            return
        work = queue.popleft()
        work.moment = self._now + (self._delay(site, _kind(work.frame)) if site in self._sites else 0.0)
        self._busy.add(site)
        heapq.heappush(self._under_way, work)

    def _waited(self, of: Collection[str] | None) -> list[_Work]:
        every = [*self._under_way, *(work for queue in self._queues.values() for work in queue)]
        return sorted(work for work in every if not work.late and (of is None or work.site in of))


def _kind(frame: bytes) -> str:
    try:
        task = decode(frame, who="the virtual transport")
    except ProtocolError:  # for the site to refuse
        return ""
    return task.kind if isinstance(task, ProtocolMessage) else ""
