"""A database file in which what is committed stays: write-ahead log, an fsync at every commit, one writer at a time."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, MetaData, Table, create_engine, event, insert, update
from sqlalchemy.pool import QueuePool

from consilia.core.errors import StoreError
from consilia.store import faults as said
from consilia.store.crash import crash_point
from consilia.store.faults import faults
from consilia.store.recognise import recognise

READING = "consilia_reading"

_PREPARED = 128  # statements of a ledger


def open_engine(
    path: Path, *, who: str, metadata: MetaData, header: Table, kind: str, version: int, name: str, grows_from: int,
) -> Engine:  # fmt: skip
    """Open a site's file, and create it where there is none.

    Args:
        path: The file.
        who: How errors name it.
        metadata: The tables it must have.
        header: The table that says what the file is.
        kind: The kind of file.
        version: The version of its tables.
        name: Whose it is.
        grows_from: The oldest version whose files lack nothing but tables; they are added.

    Raises:
        StoreError: If it is not a database, another kind of database, another owner's, of another
            version, locked, damaged, or may not be written. A foreign file is refused before a byte of it changes.
    """

    def look(connection: Connection) -> int | None:
        found = recognise(
            connection, who, header=header, kind=kind, versions=(grows_from, version), names=(name,), create=True
        )
        return None if found is None else found[0]

    engine = file_engine(path, who, create=True, prepared=_PREPARED)
    try:
        with reading(engine, who) as connection:
            found = look(connection)
        write_ahead(engine, who)
        if found != version:
            with writing(engine, who, "store.create") as connection:
                # Asked again under the write lock: two processes may have seen the file empty, or old.
                found = look(connection)
                metadata.create_all(connection)
                if found is None:
                    connection.execute(insert(header).values(kind=kind, version=version, name=name))
                elif found != version:
                    connection.execute(update(header).values(version=version))
    except BaseException:
        engine.dispose()
        raise
    return engine


def file_engine(path: Path, who: str, *, create: bool, sealed: bool = False, prepared: int = 0) -> Engine:
    """Return an engine on a database file; nothing in it is read yet.

    Args:
        path: The file.
        who: How errors name it.
        create: Whether to make an empty file, and the folders above it, where there is none.
        sealed: Only to read, where this user may write neither file nor folder.
        prepared: Statements that stay prepared, with the values they were last given.

    Raises:
        StoreError: If it is a folder, does not exist, or cannot be made.
    """
    with faults(who):
        if path.is_dir():
            raise StoreError.of(who, needs="a file", got=f"the folder {path}", hint="Name a file inside it")
        if not create and not path.exists():
            raise StoreError.of(
                who,
                needs="an existing file",
                got=f"no file {path}",
                hint="Check the path of the run's folder",
            )
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            # A site's local state is computed from patients and not noised: only the owner may read the file.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    return _engine(_untouched(path) if sealed else str(path), prepared)


def writable(path: Path) -> bool:
    """Say whether this user may write a file and the folder it lies in."""
    return all(
        os.access(place, os.W_OK, effective_ids=os.access in os.supports_effective_ids) for place in (path, path.parent)
    )


def _untouched(path: Path) -> str:
    # Without a folder to write in there is no shared memory beside a write-ahead log. What was closed in order left no log:
    # the file is then all there is, and nobody changes it.
    logged = path.with_name(path.name + "-wal")
    whole = not logged.exists() or logged.stat().st_size == 0
    return f"{path.resolve().as_uri()}?mode=ro{'&immutable=1' if whole else ''}"


def _engine(place: str, prepared: int) -> Engine:
    # One connection a store: SQLite has one writer anyway, and a ledger's statements stay prepared. A journal's do not: the
    # last model would stay with the statement that wrote it.
    engine = create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(
            place,
            uri=place.startswith("file://"),
            timeout=said.BUSY_SECONDS,
            check_same_thread=False,
            isolation_level=None,
            cached_statements=prepared,
        ),
        poolclass=QueuePool,
        pool_size=1,
        max_overflow=0,
    )

    @event.listens_for(engine, "connect")
    def _connected(connection: sqlite3.Connection, _record: object) -> None:
        # A model is one large row: four times fewer pages than the default halve its time (new files only).
        connection.execute("PRAGMA page_size = 16384")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = FULL")  # NORMAL may lose a commit when the power fails
        connection.execute("PRAGMA fullfsync = ON")  # macOS: an fsync that reaches the disk

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        # The write lock is taken before the first read: what a transaction decides on cannot change under it.
        reads = connection.get_execution_options().get(READING, False)
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    return engine


def write_ahead(engine: Engine, who: str) -> None:
    """Switch a file to a write-ahead log.

    Raises:
        StoreError: If its file system has none, or it may not be written.
    """
    with faults(who):
        raw = engine.raw_connection()
        try:
            (mode,) = raw.cursor().execute("PRAGMA journal_mode = WAL").fetchone()
        finally:
            raw.close()
    if mode != "wal":
        raise StoreError.of(
            who,
            needs="a file system with a write-ahead log",
            got=f"journal mode {mode}",
            hint="Use a local disk",
        )


@contextmanager
def writing(engine: Engine, who: str, place: str) -> Iterator[Connection]:
    """One durable transaction: all of it on disk when the block ends, or none of it.

    Args:
        engine: The database.
        who: How errors name it.
        place: Begins the names of this transaction's three crash points.

    Raises:
        StoreError: If it cannot be written.
    """
    crash_point(f"{place}.before")
    with faults(who), engine.begin() as connection:
        yield connection
        crash_point(f"{place}.written")
    crash_point(f"{place}.committed")


@contextmanager
def reading(engine: Engine, who: str) -> Iterator[Connection]:
    """One consistent view, without the write lock.

    Raises:
        StoreError: If it cannot be read.
    """
    with (
        faults(who),
        engine.connect().execution_options(**{READING: True}) as connection,
        connection.begin(),
    ):
        yield connection
