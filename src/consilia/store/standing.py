"""What a population's chain says, folded entry by entry: allotments, charges, open holds. No disk.

The fold is never stored: it is read again from the chain, so a wrong sum cannot outlive a restart.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from consilia.core.canonical import Json, digest
from consilia.core.errors import StoreError
from consilia.dp.chain import Entry, Kind, append, genesis, unreadable
from consilia.dp.event import AnyEvent
from consilia.dp.ledger import Allotment


@dataclass
class RunStanding:
    """One run's part of a chain.

    Attributes:
        allotment: What the run may charge at most.
        fingerprint: Of the data the run was admitted with.
        charged: How often each event was reserved, by digest; committed or not.
        open: Reserve entries without a commit, by index.
        commits: Per purpose, the newest commit entry.
        closed: Status the run was closed with, or None.
    """

    allotment: Allotment
    fingerprint: str
    charged: dict[str, int] = field(default_factory=dict)
    open: dict[int, Entry] = field(default_factory=dict)
    commits: dict[str, Entry] = field(default_factory=dict)
    closed: str | None = None

    def open_hold(self, round: int, purpose: str, event: AnyEvent) -> Entry | None:
        """Return the newest open hold for this very release, or None."""
        wanted = event.to_json()
        for entry in reversed(self.open.values()):
            if (entry.round, entry.body["purpose"]) == (round, purpose) and entry.body["event"] == wanted:
                return entry
        return None


@dataclass
class Standing:
    """A population's chain up to `last`.

    Attributes:
        population: The steward's name for the people in the data.
        last: The newest entry, or None for an empty chain.
        runs: Every run that was admitted, in order.
        events: Every event that was allotted, by digest.
        limit: Epsilon over all runs: what the steward set last, lowered by each plan admitted since; None: no limit.
    """

    population: str
    last: Entry | None = None
    runs: dict[str, RunStanding] = field(default_factory=dict)
    events: dict[str, AnyEvent] = field(default_factory=dict)
    limit: float | None = None

    @property
    def head(self) -> str:
        """Hash of the last entry, or the genesis of an empty chain."""
        return genesis(self.population) if self.last is None else self.last.hash

    def next(self, kind: Kind, run: str, round: int, body: dict[str, Json]) -> Entry:
        """Return the entry that would follow; the fold changes only when it is read back from the disk."""
        return append(self.last, kind=kind, population=self.population, run=run, round=round, body=body)

    def follows(self, entry: Entry) -> bool:
        """Say whether an entry is the one that comes after `last`."""
        index = 0 if self.last is None else self.last.index + 1
        return (entry.index, entry.previous, entry.population) == (index, self.head, self.population)

    def lowered(self, limit: float | None) -> float | None:
        """Return the limit that counts beside a plan's own: a plan can lower what is in force, never raise it."""
        return min((known for known in (self.limit, limit) if known is not None), default=None)

    def run(self, name: str) -> RunStanding:
        """Return one run's part.

        Raises:
            StoreError: If the run was never admitted here.
        """
        standing = self.runs.get(name)
        if standing is None:
            raise StoreError.of(
                f"run {name!r} on {self.population!r}", needs="an allotment", got="none in this ledger",
                hint="Allot before the first round",
            )  # fmt: skip
        return standing

    def apply(self, entry: Entry) -> None:
        """Fold in the next entry.

        Raises:
            StoreError: If its body is not what this store writes.
        """
        try:
            self._apply(entry)
        except (KeyError, TypeError, ValueError) as error:
            raise unreadable(f"entry {entry.index} of {entry.population!r}", error) from None
        self.last = entry

    def _apply(self, entry: Entry) -> None:
        body = entry.body
        match entry.kind:
            case Kind.ALLOT:
                allotment = Allotment.from_json(cast("Mapping[str, Json]", body["allotment"]))
                self.events.update((event.digest, event) for event, _ in allotment.events)
                self.runs[entry.run] = RunStanding(allotment, str(body["fingerprint"]))
                self.limit = self.lowered(cast("float | None", body["limit"]))
            case Kind.RESERVE:
                run = self.runs[entry.run]
                name = digest(body["event"])
                run.charged[name] = run.charged.get(name, 0) + 1
                run.open[entry.index] = entry
            case Kind.COMMIT:
                run = self.runs[entry.run]
                del run.open[cast("int", body["reserve"])]
                run.commits[str(body["purpose"])] = entry
            case Kind.CLOSE:
                self.runs[entry.run].closed = str(body["status"])
            case Kind.LIMIT:
                self.limit = None if body["limit"] is None else float(cast("float", body["limit"]))
