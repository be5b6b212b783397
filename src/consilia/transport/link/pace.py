"""How much of a message is under way at a time: enough to fill the line, not so much that bytes wait in queues.

A heartbeat, an acknowledgement or another site's message must not stand behind megabytes on a slow line, and the end that
receives must not hold them in memory. So the window grows while answers come without waiting, and shrinks when they wait.

Source: the idea of delay-based congestion control (LEDBAT, RFC 6817): hold the time that bytes spend in queues at a target.
"""

from typing import Final

from consilia.transport.link.packets import MAX_PIECE

LEAST: Final = 1 << 17
MOST: Final = 1 << 22
_QUEUED = 0.1  # seconds that bytes may wait in queues


class Pace:
    """The window of one stream.

    Attributes:
        window: Bytes that may be under way.
    """

    def __init__(self) -> None:
        self.window = LEAST
        self._least = float("inf")

    @property
    def piece(self) -> int:
        """Bytes to put into a packet."""
        return min(self.window // 2, MAX_PIECE)

    def took(self, seconds: float, *, full: bool) -> None:
        """Note how long a packet took to be answered, and whether the window was full meanwhile."""
        self._least = min(self._least, seconds)
        if seconds - self._least > _QUEUED:
            self.window = max(LEAST, self.window // 2)
        elif full:
            self.window = min(MOST, self.window * 2)
