"""Ctrl-C in the middle of a run: where to go on."""


class Interrupted(Exception):  # noqa: N818  (not an error: the person wanted it)
    """A command was stopped by hand.

    Args:
        hint: How to go on, as a sentence; empty where nothing was begun.
    """

    def __init__(self, hint: str = "") -> None:
        super().__init__(hint)
        self.hint = hint
