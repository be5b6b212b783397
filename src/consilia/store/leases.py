"""Who works on a run of the queue: held by one coordinator, renewed while it lives, void soon after it is gone.

In PostgreSQL a lease is a time in the run's row that the holder renews, on the server's clock: the only one that all
coordinators share. In SQLite it is the lock of a file, which ends with its process at once: there all processes are on one
machine, whose system knows better than a clock whether one lives, and a time stamp would be wrong after a reboot or a step
of the clock.
"""

import logging
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from sqlalchemy import Connection, Row, text, update

from consilia.core.errors import StoreError
from consilia.store.database import Database
from consilia.store.journal_tables import queue
from consilia.store.locks import FileLock

LEASE_SECONDS = 30.0
_RENEWALS = 6  # in the time of one lease: a few may fail
_NOW = text("SELECT extract(epoch FROM clock_timestamp())::float8")
_log = logging.getLogger("consilia.store")


class Leases(Protocol):
    """The leases of a store."""

    def alive(self, connection: Connection, row: Row[Any]) -> bool:
        """Say whether the holder named in a run's row still has it."""
        ...

    def until(self, connection: Connection) -> float | None:
        """Return what a lease taken now has in its row."""
        ...

    @contextmanager
    def kept(self, run: str) -> Iterator[str]:
        """Be a holder; yield its name, which goes into the run's row inside the block and out of it before its end.

        Raises:
            StoreError: If the store cannot be written.
        """
        ...


def leases_of(database: Database) -> Leases:
    """Return the leases that fit the kind of database."""
    return ServerLeases(database) if database.on_server else FileLeases(database)


class FileLeases:
    """Leases that are locks of files."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def alive(self, connection: Connection, row: Row[Any]) -> bool:
        """See `Leases`."""
        path = self._database.lock_file(row.holder)
        if not path.exists():
            return False
        lock = FileLock.take(path, self._database.who)
        if lock is not None:
            lock.close()
        return lock is None

    def until(self, connection: Connection) -> float | None:
        """See `Leases`."""
        return None

    @contextmanager
    def kept(self, run: str) -> Iterator[str]:
        """See `Leases`."""
        name = secrets.token_hex(16)
        lock = self._database.lock(name)
        try:
            yield name
        finally:
            lock.close()
            self._database.lock_file(name).unlink(missing_ok=True)  # the name is never used again


class ServerLeases:
    """Leases that run out on the server's clock."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def alive(self, connection: Connection, row: Row[Any]) -> bool:
        """See `Leases`."""
        return row.until is not None and row.until > connection.execute(_NOW).scalar_one()

    def until(self, connection: Connection) -> float | None:
        """See `Leases`."""
        return float(connection.execute(_NOW).scalar_one()) + LEASE_SECONDS

    @contextmanager
    def kept(self, run: str) -> Iterator[str]:
        """See `Leases`."""
        name, ended = secrets.token_hex(16), threading.Event()
        mine = update(queue).where(queue.c.run == run, queue.c.holder == name)

        def renew() -> None:
            while not ended.wait(LEASE_SECONDS / _RENEWALS):
                try:
                    self._database.write("queue.renew", lambda connection, _again: connection.execute(
                        mine.values(until=self.until(connection))))  # fmt: skip
                except (
                    StoreError
                ) as error:  # the next try may do; if none does, the journal refuses what comes too late
                    _log.warning("the lease of run %s is not renewed: %s", run, error)

        thread = threading.Thread(target=renew, name=f"lease of {run}", daemon=True)
        thread.start()
        try:
            yield name
        finally:
            ended.set()
            thread.join()
