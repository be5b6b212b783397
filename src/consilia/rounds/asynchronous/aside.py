"""A transport that keeps apart what comes from sites that work in the background of an exchange."""

from collections.abc import Callable, Collection, Iterator

from consilia.core.update import Gone
from consilia.rounds.ports import Arrival, Transport


class Aside:
    """Hands on what comes, but for what belongs to the background.

    Args:
        inner: What carries the frames.
        take: Takes an event and says whether it belongs there.
    """

    def __init__(self, inner: Transport, take: Callable[[Arrival | Gone], bool]) -> None:
        self._inner = inner
        self._take = take

    def send(self, site: str, frame: bytes) -> None:
        """Hand a frame on."""
        self._inner.send(site, frame)

    def events(self, timeout: float, of: Collection[str] | None = None) -> Iterator[Arrival | Gone]:
        """Yield what comes and belongs to no site's work in the background."""
        for event in self._inner.events(timeout, of):
            if not self._take(event):
                yield event
