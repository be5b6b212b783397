"""The transcript of a run at its coordinator: the newest entries at hand, the older ones where they are written down."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from consilia.secagg import transcript
from consilia.secagg.transcript import Entry

AT_HAND: Final = 32  # entries: sites seldom lack more


class Written:
    """A transcript that takes no more memory in a long run than in a short one.

    Args:
        run: Id of the run.
        read: Returns every entry that is written down, in order.

    Attributes:
        count: Entries so far.
        head: Hash of the last one; before the first, what stands for it.
    """

    def __init__(self, run: str, read: Callable[[], Sequence[Entry]]) -> None:
        self._read = read
        known = read()
        self._newest = deque(known, AT_HAND)
        self.count = len(known)
        self.head = known[-1].hash if known else transcript.first(run)

    def add(self, entry: Entry) -> None:
        """Go on with an entry, which its round is about to write down."""
        self._newest.append(entry)
        self.count += 1
        self.head = entry.hash

    def since(self, place: int) -> list[Entry]:
        """Return the entries from a place on, counted from 0."""
        oldest = self.count - len(self._newest)
        if place >= oldest:
            return list(self._newest)[place - oldest :]
        # The last may not be written down yet; those that are no longer at hand are.
        return [*self._read()[place:oldest], *self._newest]
