"""Coordinator and many sites in one process, whose sites train together."""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from consilia.core.update import Gone
from consilia.rounds.pending import Outcome, Pending
from consilia.rounds.ports import Arrival, Clock

_In = TypeVar("_In")
_Out = TypeVar("_Out")


class Booking(Protocol):
    """A site that books a task, lets it be computed, and answers."""

    def begin(self, frame: bytes) -> bytes | Pending:
        """Book the task; bytes are the answer already."""
        ...

    def finish(self, pending: Pending, outcome: Outcome) -> bytes:
        """Seal, commit and return the answer."""
        ...


class Trainer(Protocol):
    """Computes what sites have booked."""

    @property
    def at_once(self) -> int:
        """Sites in a turn."""
        ...

    def compute(self, pending: Sequence[Pending]) -> list[Outcome]:
        """Return each one's outcome, in their order."""
        ...


class InCohort:
    """Delivers frames to sites of one process, several sites a turn.

    Args:
        sites: The sites by name.
        trainer: What trains them.
        clock: Monotonic seconds.
        writers: Ledgers that may wait for the disk at the same time, as those of real sites do.

    Guarantees:
        In each turn every site reserves in its own ledger before any is trained, and an answer is handed over after its own
        site has sealed and committed it. A kill in between costs each site of the turn what it costs one site by itself.
    """

    def __init__(self, sites: Mapping[str, Booking], trainer: Trainer, clock: Clock, *, writers: int) -> None:
        self._sites = sites
        self._trainer = trainer
        self._clock = clock
        self._writers = writers
        self._waiting: deque[tuple[str, bytes]] = deque()

    def send(self, site: str, frame: bytes) -> None:
        """Queue a frame for the site."""
        self._waiting.append((site, frame))

    def events(self, timeout: float, of: Collection[str] | None = None) -> Iterator[Arrival | Gone]:
        """Let the sites answer turn by turn; those whose turn comes or ends after the deadline are gone for this round."""
        end = self._clock() + timeout
        asked = deque(item for item in self._waiting if of is None or item[0] in of)
        self._waiting = deque(item for item in self._waiting if of is not None and item[0] not in of)
        try:
            while asked:
                turn = self._turn(asked)
                known = {site: frame for site, frame in turn.items() if site in self._sites}
                answers = {} if self._clock() > end else self._answers(known)
                late = self._clock() > end
                for site in turn:
                    if site not in self._sites:
                        yield Gone(site, "not connected")
                    elif late:
                        yield Gone(site, "no answer before the deadline")
                    else:
                        yield Arrival(site, answers[site])
        finally:
            self._waiting.extendleft(reversed(asked))

    def _turn(self, asked: deque[tuple[str, bytes]]) -> dict[str, bytes]:
        """Return the next frames, one for a site: a second one must find the first answered."""
        turn: dict[str, bytes] = {}
        while asked and len(turn) < self._trainer.at_once and asked[0][0] not in turn:
            site, frame = asked.popleft()
            turn[site] = frame
        return turn

    def _answers(self, turn: Mapping[str, bytes]) -> dict[str, bytes]:
        sites = [self._sites[name] for name in turn]
        begun = side_by_side(
            self._writers, lambda one: one[0].begin(one[1]), list(zip(sites, turn.values(), strict=True))
        )
        booked = [(site, one) for site, one in zip(sites, begun, strict=True) if isinstance(one, Pending)]
        outcomes = self._trainer.compute([one for _, one in booked])
        work = [(site, one, outcome) for (site, one), outcome in zip(booked, outcomes, strict=True)]
        finished = iter(side_by_side(self._writers, lambda one: one[0].finish(one[1], one[2]), work))
        return {
            name: next(finished) if isinstance(one, Pending) else one for name, one in zip(turn, begun, strict=True)
        }


def side_by_side(writers: int, call: Callable[[_In], _Out], items: Sequence[_In]) -> list[_Out]:
    """Return what each item gives, in order; up to `writers` of them wait for the disk at the same time.

    Booking and sealing touch nothing but the site's own files and memory.
    """
    if writers == 1 or len(items) < 2:
        return [call(item) for item in items]
    with ThreadPoolExecutor(writers) as pool:
        return list(pool.map(call, items))
