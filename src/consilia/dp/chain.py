"""The hash chain of a population's ledger: whether its record is whole. No disk.

One chain per population (a name the steward gives to the people in the data). A disk that was rolled back as a
whole still shows a whole chain, so its head is also kept with the coordinator and printed on the privacy card.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import cast

from consilia.core.canonical import Json, digest
from consilia.core.errors import StoreError


class Kind(StrEnum):
    """What an entry of the chain records."""

    ALLOT = "allot"
    RESERVE = "reserve"
    COMMIT = "commit"
    CLOSE = "close"
    LIMIT = "limit"


@dataclass(frozen=True)
class Entry:
    """One link of a population's chain.

    Attributes:
        index: Place in the chain, from 0.
        kind: What the entry records.
        population: Whose chain it is.
        run: Name of the run; empty for a limit, which is for all runs.
        round: Number of the round, from 1; 0 for entries about the whole run.
        body: Plain values, as the store needs them.
        previous: Hash of the entry before; for the first entry `genesis(population)`.
    """

    index: int
    kind: Kind
    population: str
    run: str
    round: int
    body: dict[str, Json]
    previous: str

    @cached_property
    def hash(self) -> str:
        """SHA-256 over every field, `previous` included, in hex."""
        return digest(self.to_json())

    def to_json(self) -> dict[str, Json]:
        """Return plain values."""
        return {
            "index": self.index,
            "kind": str(self.kind),
            "population": self.population,
            "run": self.run,
            "round": self.round,
            "body": self.body,
            "previous": self.previous,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Json]) -> "Entry":
        """Read back what `to_json` wrote.

        Raises:
            StoreError: If a field is missing or of another kind.
        """
        try:
            return cls(
                index=int(cast("int", value["index"])),
                kind=Kind(str(value["kind"])),
                population=str(value["population"]),
                run=str(value["run"]),
                round=int(cast("int", value["round"])),
                body=dict(cast("Mapping[str, Json]", value["body"])),
                previous=str(value["previous"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise unreadable("a ledger entry", error) from None


def genesis(population: str) -> str:
    """Return what the first entry of a population's chain names as its predecessor."""
    return digest({"ledger": 1, "population": population})


def append(
    last: Entry | None, *, kind: Kind, population: str, run: str, round: int = 0, body: dict[str, Json]
) -> Entry:
    """Return the entry that follows `last` (None: the chain is empty).

    Raises:
        StoreError: If `last` belongs to another population's chain.
    """
    if last is None:
        return Entry(0, kind, population, run, round, body, genesis(population))
    if last.population != population:
        raise StoreError.of(
            f"the ledger of {population!r}",
            needs="its own last entry to continue from",
            got=f"an entry of {last.population!r}",
            hint="Read the head of the chain again",
        )
    return Entry(last.index + 1, kind, population, run, round, body, last.hash)


def verify(entries: Iterable[Entry], population: str, *, head: str | None = None) -> str:
    """Check a whole chain from its first entry and return its head hash (`genesis` for an empty chain).

    Finds a changed, missing, added, repeated or moved entry. Without `head` a change to the last entry alone and a
    cut tail leave a chain that is whole: pass the head that was kept elsewhere.

    Raises:
        StoreError: Naming the first entry that does not fit.
    """
    running, expected, last = genesis(population), 0, -1
    for entry in entries:
        if entry.index != expected or entry.previous != running or entry.population != population:
            raise _broken(population, expected, f"entry {entry.index} of {entry.population!r} in its place")
        running, last, expected = entry.hash, expected, expected + 1
    if head is not None and head != running:
        raise _broken(population, max(last, 0), f"a chain of {expected} entries that ends in {running[:12]}")
    return running


def unreadable(what: str, error: Exception) -> StoreError:
    """Return the error for a stored value that is not what was written."""
    return StoreError.of(
        "the ledger",
        needs=f"{what} that can be read",
        got=f"a fault ({type(error).__name__})",
        hint="Restore the ledger from a copy; do not start an empty one",
    )


def _broken(population: str, index: int, got: str) -> StoreError:
    return StoreError.of(
        f"the ledger of {population!r}",
        needs=f"an unbroken chain at entry {index}",
        got=got,
        hint="Entries were changed, removed or moved: restore the ledger from a copy",
    )
