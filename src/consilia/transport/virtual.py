"""Coordinator and sites in one process on a clock of their own: who is slow follows from stated delays, and nobody sleeps."""

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from consilia.core.update import Gone, ProtocolMessage
from consilia.core.wire import decode
from consilia.rounds.ports import Arrival

Delay = Callable[[str, str], float]
"""(site, kind of task) -> seconds that the task takes there, transfer included."""


@dataclass(order=True)
class _Work:
    """A task under way: it is done at `moment`; `number` orders what is done at the same moment."""

    moment: float
    number: int
    site: str = field(compare=False)
    frame: bytes = field(compare=False)
    late: bool = field(default=False, compare=False)


class Virtual:
    """Delivers frames to functions of their sites, each of which does one task after another in virtual time.

    A site does its tasks at the moment they are done, in the order of these moments and then of sending: what the parties see of
    each other depends on the delays alone, so the same delays give the same run.

    Args:
        sites: For each site, what answers its frames.
        delay: How long a task takes.
    """

    def __init__(self, sites: Mapping[str, Callable[[bytes], bytes]], delay: Delay) -> None:
        self._sites = sites
        self._delay = delay
        self._now = 0.0
        self._free: dict[str, float] = {}
        self._under_way: list[_Work] = []
        self._sent = 0

    def clock(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def send(self, site: str, frame: bytes) -> None:
        """Let a site begin a task once it has done those before."""
        task = decode(frame, who="the virtual transport")
        kind = task.kind if isinstance(task, ProtocolMessage) else ""
        done = max(self._now, self._free.get(site, 0.0)) + self._delay(site, kind)
        self._free[site] = done
        self._sent += 1
        heapq.heappush(self._under_way, _Work(done, self._sent, site, frame))

    def events(self, timeout: float, of: Collection[str] | None = None) -> Iterator[Arrival | Gone]:
        """Let time pass until those that are waited for have answered, or to the deadline; others' answers come as well."""
        end = self._now + timeout
        while waited := [work for work in self._under_way if not work.late and (of is None or work.site in of)]:
            if self._under_way[0].moment > end:
                self._now = end
                for work in sorted(waited):
                    work.late = True  # it is done all the same, and its answer goes nowhere
                    yield Gone(work.site, "no answer before the deadline")
                return
            work = heapq.heappop(self._under_way)
            self._now = max(self._now, work.moment)
            known = work.site in self._sites
            answer = self._sites[work.site](work.frame) if known else b""
            if not work.late:
                yield Arrival(work.site, answer) if known else Gone(work.site, "not connected")
