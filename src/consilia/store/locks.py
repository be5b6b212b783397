"""One process a run: a lock that the operating system or the server lets go of when its holder dies, however it dies."""

import hashlib
import sqlite3
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from consilia.core.errors import StoreError
from consilia.store.faults import faults, passing
from consilia.store.place import Place
from consilia.store.postgres import engine_of

# A server notices within moments that a local process died; its successor waits that long and no longer.
GRACE_SECONDS = 2.0


class Taken(StoreError):  # noqa: N818
    """Another process holds the lock."""


class Lock(Protocol):
    """Held by one process."""

    def require(self) -> None:
        """Check that it is still held, and take it again if only the connection was lost.

        Raises:
            StoreError: If another process holds it now.
        """
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


def lock(place: Place, run: str | None, who: str) -> Lock:
    """Take a run's lock.

    Args:
        place: The store's.
        run: The run, of many; None: the one of a file of one run.
        who: How errors name the store.

    Raises:
        StoreError: If another process holds it, or its file cannot be written.
        DBAPIError: If the server cannot be reached now.
    """
    if place.url is not None:
        return ServerLock(engine_of(place.url, who, pooled=False), run or "", who)
    path = place.lock_file(run)
    with faults(who):
        path.parent.mkdir(mode=0o700, exist_ok=True)
    held = FileLock.take(path, who)
    if held is None:
        raise _taken(who)
    return held


class FileLock:
    """The exclusive lock of a file."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    @classmethod
    def take(cls, path: Path, who: str) -> "FileLock | None":
        """Take it, or return None if another holds it.

        Raises:
            StoreError: If the file cannot be written.
        """
        with faults(who):
            connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
            try:
                connection.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError as error:
                connection.close()
                if error.sqlite_errorname.startswith("SQLITE_BUSY"):
                    return None
                raise
        return cls(path, connection)

    def require(self) -> None:
        """Do nothing: only this process's end takes it away."""

    def close(self) -> None:
        """Let go of it; the file stays, or another process could lock a file that has no name any more."""
        self._connection.close()


class ServerLock:
    """An advisory lock of a PostgreSQL session, on a connection of its own.

    Guarantees:
        That the session still holds it is asked of the server itself, so a proxy that hands out other sessions is noticed.
    """

    def __init__(self, engine: Engine, name: str, who: str) -> None:
        self._engine = engine
        self._who = who
        self._key = int.from_bytes(hashlib.sha256(b"consilia run " + name.encode()).digest()[:8], "big", signed=True)
        self._connection: Connection | None = None
        self._take()

    def require(self) -> None:
        """See `Lock`.

        Raises:
            DBAPIError: If the server cannot be reached now.
        """
        if self._connection is not None:
            try:
                if self._connection.execute(_HELD, {"key": self._key}).scalar():
                    return
            except DBAPIError as error:
                if not passing(error):
                    raise
            self.close()
        self._take()

    def _take(self) -> None:
        connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            connection.execute(text(f"SET lock_timeout = '{GRACE_SECONDS:g}s'"))
            connection.execute(_LOCK, {"key": self._key})
        except BaseException as error:
            connection.close()
            if isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) == "55P03":
                raise _taken(self._who) from None
            raise
        self._connection = connection

    def close(self) -> None:
        """Let go of it."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


_LOCK = text("SELECT pg_advisory_lock(:key)")
_HELD = text(
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted AND objsubid = 1"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND ((classid::bigint << 32) | objid::bigint) = :key"
)


def _taken(who: str) -> Taken:
    return Taken.of(
        who, needs="to be run by one process", got="another process that runs it now",
        hint="Wait for it or end it, then resume",
    )  # fmt: skip
