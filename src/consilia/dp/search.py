"""What a ledger holds of a search: how many trials it may run, each of which mechanism, under which law of their number."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from consilia.core.canonical import Json
from consilia.dp.event import AnyEvent, event_from_json
from consilia.dp.selection_trials import Trials, trials_from_json

Events = tuple[tuple[AnyEvent, int], ...]
"""Pairs (event, how often a trial may charge it)."""


@dataclass(frozen=True)
class Search:
    """The part of a search's allotment that its trials are held against.

    Attributes:
        law: The law that the number of trials was drawn from; the allotment's epsilon is the price under it.
        trials: The number drawn. It never leaves the site: a bound on the winner holds for those who do not know it.
        bases: What one trial may charge: its events are one of these.
    """

    law: Trials
    trials: int
    bases: tuple[Events, ...]

    def holds(self, events: Events) -> bool:
        """Say whether a trial may charge these events."""
        return any(_counts(events) == _counts(base) for base in self.bases)

    def to_json(self) -> dict[str, Json]:
        """Return plain values for the body of an entry."""
        bases: Json = [[[event.to_json(), times] for event, times in base] for base in self.bases]
        return {"law": self.law.to_json(), "trials": self.trials, "bases": bases}

    @classmethod
    def from_json(cls, value: Mapping[str, Json]) -> "Search":
        """Read back what `to_json` wrote.

        Raises:
            ValueError, KeyError, TypeError: If a field is missing or of another kind.
        """
        bases = cast("Sequence[Sequence[tuple[dict[str, Json], int]]]", value["bases"])
        return cls(
            trials_from_json(cast("Mapping[str, Json]", value["law"])),
            int(cast("int", value["trials"])),
            tuple(tuple((event_from_json(event), int(times)) for event, times in base) for base in bases),
        )


def _counts(events: Iterable[tuple[AnyEvent, int]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for event, times in events:
        counts[event.digest] = counts.get(event.digest, 0) + times
    return counts
