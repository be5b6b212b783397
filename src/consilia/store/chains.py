"""Chains of entries in the database: read what was appended, check that it continues, append.

Nothing here decides on a charge; callers hold the write lock while they decide on what `refresh` returns.
"""

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select

from consilia.core.canonical import canonical_bytes
from consilia.core.errors import StoreError
from consilia.dp import chain
from consilia.dp.chain import Entry, Kind
from consilia.store.standing import RunStanding, Standing
from consilia.store.tables import entries

_insert = insert(entries)
_since = (
    select(entries)
    .where(entries.c.population == bindparam("population"), entries.c.position >= bindparam("position"))
    .order_by(entries.c.position)
)
_population_of = (
    select(entries.c.population).where(entries.c.run == bindparam("run"), entries.c.kind == str(Kind.ALLOT)).limit(1)
)
_all_populations = select(entries.c.population).distinct().order_by(entries.c.population)


class Chains:
    """Every population's chain in one file, each folded as far as this process has read it."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._standings: dict[str, Standing] = {}
        self._populations: dict[str, str] = {}

    def population(self, connection: Connection, run: str) -> str | None:
        """Return the population that a run was admitted to, or None."""
        population = self._populations.get(run)
        if population is None:
            population = connection.execute(_population_of, {"run": run}).scalar()
            if population is not None:
                self._populations[run] = population
        return population

    def populations(self, connection: Connection) -> list[str]:
        """Return the names of all populations, in order of name."""
        return list(connection.execute(_all_populations).scalars())

    def running(self, connection: Connection, run: str) -> tuple[Standing, RunStanding]:
        """Return the chain of a run's population and the run's part of it.

        Raises:
            StoreError: If the run was never admitted or is closed, or the chain cannot be trusted.
        """
        population = self.population(connection, run)
        if population is None:
            raise StoreError.of(
                self._who, needs=f"an allotment for run {run!r}", got="none", hint="Allot first"
            )  # fmt: skip
        standing = self.refresh(connection, population)
        state = standing.run(run)
        if state.closed is not None:
            raise StoreError.of(
                self._who,
                needs=f"run {run!r} to be open",
                got=f"a run closed as {state.closed!r}",
                hint="Start a new run; a closed one charges nothing more",
            )
        return standing, state

    def refresh(self, connection: Connection, population: str) -> Standing:
        """Fold in what was appended since, by this process or another, and return how the chain stands.

        Raises:
            StoreError: If an entry does not continue the chain that this process knows.
        """
        standing = self._standings.get(population) or Standing(population)
        # The last known entry is read again: it tells a chain that grew from one that was replaced or cut.
        rows = self._rows(connection, population, standing.last.index if standing.last else 0)
        if standing.last is not None:
            if not rows or rows[0].hash != standing.head:
                raise StoreError.of(
                    self._who,
                    needs=f"the chain of {population!r} to go on from {standing.head[:12]}",
                    got="a chain that was cut or replaced while this process ran",
                    hint="Restore the newest copy of the file",
                )
            rows = rows[1:]
        try:
            for row in rows:
                entry = _entry(row)
                if not standing.follows(entry):
                    chain.verify(self.read(connection, population), population)
                standing.apply(entry)
        except BaseException:
            self._standings.pop(population, None)  # half folded: the next call starts from the chain again
            raise
        self._standings[population] = standing
        return standing

    def read(self, connection: Connection, population: str) -> list[Entry]:
        """Return a whole chain, each entry checked against its own hash.

        Raises:
            StoreError: If an entry is not what was written.
        """
        return [_entry(row) for row in self._rows(connection, population, 0)]

    def append(self, connection: Connection, entry: Entry) -> str:
        """Write an entry and return its hash. The primary key refuses a second entry in the same place."""
        connection.execute(
            _insert,
            {
                "population": entry.population,
                "position": entry.index,
                "kind": str(entry.kind),
                "run": entry.run,
                "round": entry.round,
                "body": canonical_bytes(entry.body).decode(),
                "previous": entry.previous,
                "hash": entry.hash,
            },
        )
        return entry.hash

    def _rows(self, connection: Connection, population: str, position: int) -> Sequence[Row[Any]]:
        return connection.execute(_since, {"population": population, "position": position}).all()


def _entry(row: Row[Any]) -> Entry:
    try:
        body = json.loads(row.body)
        intact = canonical_bytes(body).decode() == row.body
    except (TypeError, ValueError, RecursionError):
        body, intact = {}, False
    if intact:
        fields = {name: getattr(row, name) for name in ("kind", "population", "run", "round", "previous")}
        entry = Entry.from_json({"index": row.position, "body": body, **fields})
        if entry.hash == row.hash:
            return entry
    raise StoreError.of(
        f"the ledger of {row.population!r}",
        needs=f"entry {row.position} as it was written",
        got="other bytes",
        hint="Entries were changed: restore the ledger from a copy",
    )
