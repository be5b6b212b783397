"""Waiting in tests: for a condition, with a deadline."""

import time
from collections.abc import Callable

PATIENCE = 20.0


def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)
