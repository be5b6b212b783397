"""How much of a message is under way at a time: enough to fill the line, not so much that bytes wait in queues.

A heartbeat, an acknowledgement or another site's message must not stand behind megabytes on a slow line, and the end that
receives must not hold them in memory. So the window grows while answers come without waiting, and shrinks when they wait.

Source: the idea of delay-based congestion control (LEDBAT, RFC 6817): hold the time that bytes spend in queues at a target.
"""

from typing import Final

LEAST: Final = 1 << 16
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
        self._changed = float("-inf")

    def confirmed(self, sent: float, now: float, *, full: bool) -> None:
        """Note when a packet was sent and when it was confirmed, and whether the window was full then."""
        self._least = min(self._least, now - sent)
        waited = now - sent - self._least > _QUEUED
        if sent < self._changed or not (waited or full):
            return  # a packet of the window before says nothing about this one
        self.window = max(LEAST, self.window // 2) if waited else min(MOST, self.window * 2)
        self._changed = now
