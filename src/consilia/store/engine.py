"""Open a database file so that what is committed stays, or say in one sentence why it cannot be opened.

SQLite: write-ahead log, an fsync at every commit, one writer at a time. A foreign file is refused before a
byte of it changes.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, MetaData, Table, create_engine, event, insert, inspect, select, update
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from consilia.core.errors import StoreError
from consilia.store.crash import crash_point

BUSY_SECONDS = 10.0
_READING = "consilia_reading"
# What reading values raises that nobody wrote: bytes that are no text, JSON that is none, nested too deep, or of another
# kind. Damage turns up wherever a value is first used, and the driver meets it as often as this package does.
DAMAGE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


@contextmanager
def faults(who: str) -> Iterator[None]:
    """Turn what the database or the file system says into one `StoreError` that says what to do.

    Raises:
        StoreError: In place of any database or file-system error, and of what damaged values raise when read.
    """
    try:
        yield
    except DBAPIError as error:
        raise _explain(who, error.orig or error) from error
    except (SQLAlchemyError, sqlite3.Error, OSError) as error:
        raise _explain(who, error) from error
    except DAMAGE as error:
        raise damaged(who, error) from error


def damaged(who: str, error: BaseException) -> StoreError:
    """Return the error for a file that holds what Consilia did not write."""
    return StoreError.of(
        who, needs="the values that were written to it", got=f"others, which cannot be read ({type(error).__name__})",
        hint="It was changed or damaged on disk: restore it from a copy",
    )  # fmt: skip


def _explain(who: str, error: BaseException) -> StoreError:
    name = getattr(error, "sqlite_errorname", "")
    got = f"{error}" or type(error).__name__
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return StoreError.of(
            who, needs="an undamaged Consilia database", got=got,
            hint="Restore it from a copy, and compare its head with the coordinator's before going on",
        )  # fmt: skip
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreError.of(
            who, needs=f"its turn to write within {BUSY_SECONDS:g} seconds",
            got="another process that holds the file", hint="Wait for the other run or end it, then resume",
        )  # fmt: skip
    if name.startswith("SQLITE_FULL") or getattr(error, "errno", None) == 28:
        return StoreError.of(
            who,
            needs="room on the disk",
            got=got,
            hint="Free some space, then resume; nothing was half written",
        )
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")) or isinstance(error, OSError):
        return StoreError.of(
            who, needs="a folder and file that this user may read and write", got=got,
            hint="Check the path and its permissions, or set CONSILIA_HOME to another folder",
        )  # fmt: skip
    if name.startswith("SQLITE_IOERR"):
        return StoreError.of(who, needs="a disk that reads and writes", got=got, hint="Check the disk, then resume")
    return StoreError.of(who, needs="a database that works", got=got, hint="Resume; if it happens again, report it")


def open_engine(
    path: Path, *, who: str, metadata: MetaData, header: Table, kind: str, version: int, name: str | None,
    read_only: bool = False, grows_from: int | None = None,
) -> Engine:  # fmt: skip
    """Open a database file, and create it where there is none.

    Args:
        path: The file.
        who: How errors name it.
        metadata: The tables it must have.
        header: The table that says what the file is.
        kind: The kind of file, "site" or "journal".
        version: The version of its tables.
        name: Whose it is; None accepts any and creates nothing.
        read_only: Only to read; then a file or folder that this user may not write will do.
        grows_from: The oldest version whose files lack nothing but tables; they are added. None: no other version will do.

    Raises:
        StoreError: If it is not a database, another kind of database, another owner's, of another
            version, locked, damaged, or may not be written.
    """
    with faults(who):
        if path.is_dir():
            raise StoreError.of(who, needs="a file", got=f"the folder {path}", hint="Name a file inside it")
        if name is None and not path.exists():
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
    sealed = read_only and not (_writable(path) and _writable(path.parent))
    engine = _engine(_untouched(path) if sealed else str(path))
    try:
        with faults(who):
            with reading(engine, who) as connection:
                found = _recognise(connection, who, header, kind, (grows_from or version, version), name)
            if not sealed:
                _write_ahead(engine, who)
            if found != version:
                with writing(engine, who, "store.create") as connection:
                    # Asked again under the write lock: two processes may have seen the file empty, or old.
                    found = _recognise(connection, who, header, kind, (grows_from or version, version), name)
                    metadata.create_all(connection)
                    if found is None:
                        connection.execute(insert(header).values(kind=kind, version=version, name=name))
                    elif found != version:
                        connection.execute(update(header).values(version=version))
    except BaseException:
        engine.dispose()
        raise
    return engine


def _recognise(
    connection: Connection, who: str, header: Table, kind: str, versions: tuple[int, int], name: str | None
) -> int | None:
    """Return the version of one of ours, None for an empty database that may be filled; refuse any other."""
    tables = inspect(connection).get_table_names()
    if not tables:
        if name is None:
            raise StoreError.of(
                who, needs=f"a Consilia {kind} file", got="an empty file",
                hint="Its process was killed before it began: start a new run",
            )  # fmt: skip
        return None
    if header.name not in tables:
        raise StoreError.of(
            who, needs=f"a Consilia {kind} file", got="a database of another program",
            hint="Name another file; this one was left as it is",
        )  # fmt: skip
    row = connection.execute(select(header)).one_or_none()
    if row is None or row.kind != kind:
        raise StoreError.of(
            who, needs=f"a Consilia {kind} file", got=f"a file of kind {row.kind if row else 'unknown'!s}",
            hint="Name another file",
        )  # fmt: skip
    if not versions[0] <= row.version <= versions[1]:
        raise StoreError.of(
            who, needs=f"tables of version {versions[1]}", got=f"version {row.version}",
            hint="Open it with the Consilia release that wrote it",
        )  # fmt: skip
    if name is not None and row.name != name:
        raise StoreError.of(
            who, needs=f"the file of {name!r}", got=f"the file of {row.name!r}",
            hint="Each site and each run has a file of its own",
        )  # fmt: skip
    return int(row.version)


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _untouched(path: Path) -> str:
    # Without a folder to write in there is no shared memory beside a write-ahead log. What was closed in order left no log:
    # the file is then all there is, and nobody changes it.
    logged = path.with_name(path.name + "-wal")
    whole = not logged.exists() or logged.stat().st_size == 0
    return f"{path.resolve().as_uri()}?mode=ro{'&immutable=1' if whole else ''}"


def _engine(place: str) -> Engine:
    # One connection a store: SQLite has one writer anyway, and its statements stay prepared.
    engine = create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(
            place, uri=place.startswith("file://"), timeout=BUSY_SECONDS, check_same_thread=False, isolation_level=None
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
        reads = connection.get_execution_options().get(_READING, False)
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    return engine


def _write_ahead(engine: Engine, who: str) -> None:
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
        engine.connect().execution_options(**{_READING: True}) as connection,
        connection.begin(),
    ):
        yield connection
