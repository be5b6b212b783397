"""Rounds that an operator can end: what is waited for is given up at once, and nothing is waited for long afterwards."""

from collections.abc import Callable, Collection, Iterator

from consilia.core.update import Gone
from consilia.rounds.ports import Arrival, Transport

AFTERWARDS = 10.0  # seconds that sites have to score a model and to close, once a run was asked to stop


class Interruptible:
    """A transport whose waits are short once a run was asked to stop.

    Args:
        inner: What moves the messages.
        stopping: Whether the run was asked to stop.
    """

    def __init__(self, inner: Transport, stopping: Callable[[], bool]) -> None:
        self._inner = inner
        self._stopping = stopping

    def send(self, site: str, frame: bytes) -> None:
        """Hand a frame on."""
        self._inner.send(site, frame)

    def events(self, timeout: float, of: Collection[str] | None = None) -> Iterator[Arrival | Gone]:
        """Yield answers as the inner transport does, for `AFTERWARDS` at most where the run is to stop."""
        return self._inner.events(min(timeout, AFTERWARDS) if self._stopping() else timeout, of)
