"""Ctrl-C in the middle of a run: end with the round, and say where to go on."""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from consilia.cli.output import say

OnRound = Callable[[Mapping[str, Any]], None]


class Interrupted(Exception):  # noqa: N818  (not an error: the person wanted it)
    """A command was stopped by hand.

    Args:
        hint: How to go on, as a sentence; empty where nothing was begun.
    """

    def __init__(self, hint: str = "") -> None:
        super().__init__(hint)
        self.hint = hint


@contextmanager
def after_the_round(on_round: OnRound) -> Iterator[OnRound]:
    """Give a callback for each durable round that ends the run there once Ctrl-C was pressed; a second one ends it at once.

    A run cut between charging a site's ledger and sealing its answer costs that site a turn; one that ends with its round
    costs nobody anything.
    """
    pressed = False

    def press(_signal: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        say("Ending after this round; press Ctrl-C again to end at once.")

    def check(record: Mapping[str, Any]) -> None:
        on_round(record)
        if pressed:
            raise KeyboardInterrupt

    # A service manager or a batch system asks with SIGTERM what a person asks with Ctrl-C.
    before = {number: signal.signal(number, press) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield check
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
