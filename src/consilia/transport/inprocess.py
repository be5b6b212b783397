"""Coordinator and sites in one process, exchanging the same bytes they would send over a network."""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping

from consilia.core.update import Gone
from consilia.rounds.ports import Arrival, Clock


class InProcess:
    """Delivers each frame to a function of its site, in the order of sending.

    Args:
        sites: For each site, what answers its frames.
        clock: Monotonic seconds.
    """

    def __init__(self, sites: Mapping[str, Callable[[bytes], bytes]], clock: Clock) -> None:
        self._sites = sites
        self._clock = clock
        self._waiting: deque[tuple[str, bytes]] = deque()

    def send(self, site: str, frame: bytes) -> None:
        """Queue a frame for the site."""
        self._waiting.append((site, frame))

    def events(self, timeout: float, of: Collection[str] | None = None) -> Iterator[Arrival | Gone]:
        """Let each site answer in turn; a site whose turn comes or ends after the deadline is gone for this round."""
        end = self._clock() + timeout
        while (turn := self._next(of)) is not None:
            site, frame = turn
            if site not in self._sites:
                yield Gone(site, "not connected")
                continue
            if self._clock() > end:
                yield Gone(site, "no answer before the deadline")
                continue
            answer = self._sites[site](frame)
            late = self._clock() > end
            yield Gone(site, "no answer before the deadline") if late else Arrival(site, answer)

    def _next(self, of: Collection[str] | None) -> tuple[str, bytes] | None:
        for place, (site, frame) in enumerate(self._waiting):
            if of is None or site in of:
                del self._waiting[place]
                return site, frame
        return None
