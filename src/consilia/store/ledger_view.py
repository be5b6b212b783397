"""What a site's ledger says: charges, sums, whole chains and whether they are whole. Nothing here writes."""

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from consilia.core.errors import StoreError
from consilia.dp import chain, ledger
from consilia.dp.chain import Entry
from consilia.dp.event import AnyEvent
from consilia.dp.ledger import Allotment, Relation
from consilia.store import kept
from consilia.store.chains import Chains
from consilia.store.consents import Consents
from consilia.store.engine import open_engine, reading
from consilia.store.fingerprint import DataChange, SiteKey, changes
from consilia.store.inbox import Inbox
from consilia.store.prepared import Preparations
from consilia.store.sessions import Sessions
from consilia.store.tables import SITE_GROWS_FROM, SITE_VERSION, site_header, site_metadata


class LedgerView:
    """What a site's ledger says of its populations and runs."""

    def __init__(self, path: Path, site: str) -> None:
        self.path = path
        self.site = site
        self._who = f"the ledger of site {site!r} ({path})"
        self._engine = open_engine(
            path, who=self._who, metadata=site_metadata, header=site_header, kind="site",
            version=SITE_VERSION, name=site, grows_from=SITE_GROWS_FROM,
        )  # fmt: skip
        self._chains = Chains(self._who)
        self._key = SiteKey()
        self._fingerprints: dict[str, str] = {}
        self._lock = threading.RLock()  # the fold is shared by this process's threads
        self.sessions = Sessions(self._engine, self._who)
        self.preparations = Preparations(self._engine, self._who)
        self.inbox = Inbox(self._engine, self._who)
        self.consents = Consents(self._engine, self._who)

    @classmethod
    def open(cls, path: Path, site: str) -> Self:
        """Open the site's file, and create it where there is none.

        Raises:
            StoreError: If the file cannot be used; nothing in it was changed.
        """
        return cls(path, site)

    def close(self) -> None:
        """Let go of the file."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def charged(self, run: str) -> list[tuple[AnyEvent, int]]:
        """Return what a run has charged: (event, how often), open holds included."""
        with self._lock, reading(self._engine, self._who) as connection:
            population = self._chains.population(connection, run)
            if population is None:
                return []
            standing = self._chains.refresh(connection, population)
            return [(standing.events[name], count) for name, count in standing.run(run).charged.items()]

    def newest_round(self, run: str, purpose: str) -> int:
        """Return the newest round of a run that a release is sealed for, 0 before the first."""
        with self._lock, reading(self._engine, self._who) as connection:
            return kept.newest_round(connection, run=run, purpose=purpose)

    def populations(self) -> list[str]:
        """Return the names of all populations in this ledger."""
        with reading(self._engine, self._who) as connection:
            return self._chains.populations(connection)

    def allotments(self, population: str) -> list[Allotment]:
        """Return every allotment ever admitted for a population, in order."""
        with self._lock, reading(self._engine, self._who) as connection:
            return [run.allotment for run in self._chains.refresh(connection, population).runs.values()]

    def spent(self, population: str) -> dict[Relation, tuple[float, float]]:
        """Return (epsilon, delta) summed over all runs admitted for a population, one sum for each relation."""
        return ledger.spent(self.allotments(population))

    def limit(self, population: str) -> float | None:
        """Return the epsilon over all runs that this ledger holds a population to, or None."""
        with self._lock, reading(self._engine, self._who) as connection:
            return self._chains.refresh(connection, population).limit

    def require_room(self, allotment: Allotment, *, limit: float | None) -> None:
        """Check that `SiteStore.allot` would admit this now, and write nothing.

        Raises:
            BudgetExceeded: If it does not fit.
            StoreError: If the ledger cannot be read or trusted.
        """
        with self._lock, reading(self._engine, self._who) as connection:
            standing = self._chains.refresh(connection, allotment.population)
            ledger.admit([run.allotment for run in standing.runs.values()], allotment, standing.lowered(limit))

    def entries(self, population: str) -> list[Entry]:
        """Return the whole chain of a population."""
        with reading(self._engine, self._who) as connection:
            return self._chains.read(connection, population)

    def data_changes(self, population: str) -> list[DataChange]:
        """Return where the rows behind a population's charges changed; its budget goes on all the same."""
        return changes(self.entries(population))

    def head(self, population: str) -> str:
        """Return the hash of the chain's last entry."""
        with self._lock, reading(self._engine, self._who) as connection:
            return self._chains.refresh(connection, population).head

    def verify(self, population: str, known: str | None = None) -> str:
        """Check a population's whole chain from its first entry; return its head.

        Args:
            population: The steward's name for the people in the data.
            known: A head that was kept elsewhere (the coordinator's journal, a privacy card): it must
                still be on the chain, which finds a cut tail and a disk that was rolled back.

        Raises:
            StoreError: Naming the first entry that does not fit.
        """
        with reading(self._engine, self._who) as connection:
            found = self._chains.read(connection, population)
            head = chain.verify(found, population)
            if known not in (None, chain.genesis(population), *(entry.hash for entry in found)):
                raise StoreError.of(
                    self._who, needs=f"a chain that holds the known head {str(known)[:12]}",
                    got=f"{len(found)} entries that end in {head[:12]}",
                    hint="Its end was cut or the disk rolled back: restore the newest copy",
                )  # fmt: skip
            return head
