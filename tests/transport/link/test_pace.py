"""How much is under way at a time, on lines of different kinds."""

import pytest

from consilia.transport.link.pace import LEAST, MOST, Pace


def settled(rate: float, trip: float, total: int = 200_000_000) -> tuple[Pace, float, float]:
    """Send over a line of so many bytes a second and seconds a round trip; return the pace, the seconds in all, and the
    longest that anything would have waited behind what was under way.
    """
    pace, now, free, sent, worst = Pace(), 0.0, 0.0, 0, 0.0
    waiting: list[tuple[float, float, int, bool]] = []  # when it is confirmed, when it was sent, bytes, window full
    while sent < total:
        under_way = sum(size for _, _, size, _ in waiting)
        if pace.window - under_way >= pace.window // 2:
            free = max(free, now) + pace.window // 2 / rate
            waiting.append((free + trip, now, pace.window // 2, pace.window - under_way < 2 * pace.window // 2))
            sent += pace.window // 2
            worst = max(worst, free - now)
        else:
            now, begun, _, full = waiting.pop(0)
            pace.confirmed(begun, now, full=full)
    return pace, free, worst


@pytest.mark.parametrize(("rate", "trip"), [(1e9, 0.0002), (1e8, 0.001), (1.25e7, 0.02), (1.25e7, 0.1), (1e6, 0.05)])
def test_a_line_is_filled(rate: float, trip: float) -> None:
    total = 200_000_000 if rate > 2e6 else 20_000_000
    _, seconds, _ = settled(rate, trip, total)
    assert seconds < 1.35 * total / rate + 20 * trip


@pytest.mark.parametrize("rate", [1e5, 1e6, 1e7])
def test_nothing_waits_long_behind_a_large_message(rate: float) -> None:
    pace, _, worst = settled(rate, 0.01, 20_000_000)
    assert worst < max(1.0, 1.1 * LEAST / rate)
    assert LEAST <= pace.window <= MOST
