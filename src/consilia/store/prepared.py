"""An update that a site has computed and given to no sum yet: it waits on the site's disk until a round takes it.

Guarantees:
    A run has at most one. It is dropped in the transaction that seals the release made of it (`SiteStore.commit`,
    `SiteStore.seal_free`), so after a kill at any moment either it is still here and no byte made of it was sent, or the sealed
    release is all there is of it. Dropped for any other reason it costs what it was charged.
"""

from dataclasses import dataclass

from sqlalchemy import Connection, Engine, delete, insert, select

from consilia.core.canonical import digest_bytes
from consilia.core.errors import StoreError
from consilia.store.engine import reading, writing
from consilia.store.tables import prepared


@dataclass(frozen=True)
class PreparedUpdate:
    """An update that waits.

    Attributes:
        round: The round in which the site was asked for it.
        version: Steps that the model it started from had made.
        model_digest: Of that model.
        position: Place of its charge in the ledger's chain; None where nothing is charged.
        head: Hash of the chain's last entry when it was charged; None likewise.
        state: The update and what else training left, as bytes; patient data.
    """

    round: int
    version: int
    model_digest: str
    position: int | None
    head: str | None
    state: bytes


class Preparations:
    """The part of a site's file that updates wait in.

    Args:
        engine: The site's database.
        who: How errors name it.
    """

    def __init__(self, engine: Engine, who: str) -> None:
        self._engine = engine
        self._who = who

    def keep(self, run: str, update: PreparedUpdate) -> None:
        """Store an update in place of the run's last one.

        Raises:
            StoreError: If the file cannot be written.
        """
        with writing(self._engine, self._who, "prepared.keep") as connection:
            drop(connection, run=run)
            connection.execute(insert(prepared).values(
                run=run, round=update.round, version=update.version, model_digest=update.model_digest,
                position=update.position, head=update.head, digest=digest_bytes(update.state), state=update.state,
            ))  # fmt: skip

    def found(self, run: str) -> PreparedUpdate | None:
        """Return the update that waits, or None.

        Raises:
            StoreError: If the bytes changed on disk.
        """
        with reading(self._engine, self._who) as connection:
            row = connection.execute(select(prepared).where(prepared.c.run == run)).one_or_none()
        if row is None:
            return None
        state = bytes(row.state)
        if digest_bytes(state) != row.digest:
            raise StoreError.of(self._who, needs=f"the prepared update of run {run!r} as it was stored", got="other bytes",
                                hint="The bytes changed on disk: restore the file from a copy")  # fmt: skip
        return PreparedUpdate(row.round, row.version, row.model_digest, row.position, row.head, state)

    def drop(self, run: str) -> None:
        """Forget the update that waits; what it was charged stays spent.

        Raises:
            StoreError: If the file cannot be written.
        """
        with writing(self._engine, self._who, "prepared.drop") as connection:
            drop(connection, run=run)


def drop(connection: Connection, *, run: str) -> None:
    """Drop a run's waiting update within a transaction."""
    connection.execute(delete(prepared).where(prepared.c.run == run))
