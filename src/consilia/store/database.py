"""The coordinator's database: opened, brought up to date, and written to so that a lost connection costs nothing."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, insert, text, update
from sqlalchemy.exc import DBAPIError

from consilia.store import engine as files
from consilia.store.crash import crash_point
from consilia.store.faults import faults, passing
from consilia.store.journal_tables import (
    JOURNAL_GROWS_FROM,
    JOURNAL_VERSION,
    journal_header,
    journal_metadata,
    revision,
)
from consilia.store.locks import Lock, Taken, lock
from consilia.store.place import place_of
from consilia.store.postgres import engine_of
from consilia.store.recognise import SHARED, recognise

RECONNECT_SECONDS = 60.0  # how long a server may be away before a run gives up
_PAUSES = (0.05, 1.0)  # seconds between tries, doubled from the first to the last
_T = TypeVar("_T")


class Database:
    """A store of one run (a file) or of many. Nothing in it is changed before `upgrade`.

    Args:
        place: A path, or a URL.
        name: How errors name the store, before its place.
        run: The run wanted of a file of one run; None: any.
        create: Whether an empty or missing one may be filled: by URL for many runs, by path for this run.
        many: It must be a store of many runs, also by path.
        read_only: Only to read; then a file or folder that this user may not write will do.

    Raises:
        StoreError: If it cannot be opened, or is another program's, of another kind, owner or version.
    """

    def __init__(
        self, place: Path | str, name: str, *, run: str | None, create: bool, many: bool = False, read_only: bool = False
    ) -> None:  # fmt: skip
        self._place = place_of(place)
        self.who = f"{name} {self._place.label}"
        many = many or not isinstance(place, Path)
        self._owner = SHARED if many or run is None else run
        self._names = (SHARED,) if many else (run, SHARED) if run is not None else ()
        self._create = create
        sealed = False
        if self._place.url is not None:
            self._engine = engine_of(self._place.url, self.who, pooled=True)
        else:
            path = self._place.path or Path()
            sealed = read_only and path.exists() and not files.writable(path)
            self._engine = files.file_engine(path, self.who, create=create, sealed=sealed)
        try:
            found = self._patiently(self._look, opening=True)
            self.version, self._owner = found or (0, self._owner)
            if self._place.path is not None and not sealed:
                files.write_ahead(self._engine, self.who)
        except BaseException:
            self.close()
            raise

    @property
    def shared(self) -> bool:
        """Whether many runs share it."""
        return self._owner == SHARED

    @property
    def on_server(self) -> bool:
        """Whether it is PostgreSQL."""
        return self._place.url is not None

    def lock_file(self, run: str) -> Path:
        """Return the file of a lock, of many; SQLite only."""
        return self._place.lock_file(run)

    def lock(self, run: str | None) -> Lock:
        """Take the lock of one run of many, or of the one that there is.

        Raises:
            StoreError: If another process holds it.
        """
        return self._patiently(lambda _again: lock(self._place, run if self.shared else None, self.who), opening=True)

    def upgrade(self) -> None:
        """Make the tables, or bring them to this version, in one transaction.

        Raises:
            StoreError: If they cannot be written.
        """
        if self.version == JOURNAL_VERSION:
            return

        def work(connection: Connection, _again: bool) -> None:
            if self.on_server:
                connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('consilia upgrade'))"))
            # Asked again under the write lock: two processes may have seen the store empty, or old.
            found = self._recognise(connection)
            if found is None:
                journal_metadata.create_all(connection)
                header = {"kind": "journal", "version": JOURNAL_VERSION, "name": self._owner}
                connection.execute(insert(journal_header).values(header))
                connection.execute(insert(revision).values(version_num=str(JOURNAL_VERSION)))
            elif found[0] != JOURNAL_VERSION:
                from consilia.store.migrations import migrate  # noqa: PLC0415  (Alembic: only for a store of an older release)

                migrate(connection, found[0])
                connection.execute(update(journal_header).values(version=JOURNAL_VERSION))

        self.write("store.create", work)
        self.version = JOURNAL_VERSION

    def write(self, point: str, work: Callable[[Connection, bool], _T], *, held: Lock | None = None) -> _T:
        """Run one durable transaction: all of it is on disk when this returns, or none of it.

        Args:
            point: Begins the names of its three crash points.
            work: What to do. Its second argument is True where an earlier try was cut off and nobody knows whether it was
                committed: it then takes what it wanted to write, and finds, for its own.
            held: A lock that must be held.

        Raises:
            StoreError: If it cannot be written, another process holds the lock, or the server stays away.
        """
        crash_point(f"{point}.before")

        def once(again: bool) -> _T:
            if held is not None:
                held.require()
            with self._engine.begin() as connection:
                result = work(connection, again)
                crash_point(f"{point}.written")
            return result

        result = self._patiently(once, opening=False)
        crash_point(f"{point}.committed")
        return result

    def read(self, work: Callable[[Connection], _T]) -> _T:
        """Run one consistent view.

        Raises:
            StoreError: If it cannot be read, or the server stays away.
        """

        def once(_again: bool) -> _T:
            with self._view() as connection:
                return work(connection)

        return self._patiently(once, opening=False)

    def close(self) -> None:
        """Let go of it."""
        self._engine.dispose()

    def _look(self, _again: bool) -> tuple[int, str] | None:
        with self._view() as connection:
            return self._recognise(connection)

    def _patiently(self, once: Callable[[bool], _T], *, opening: bool) -> _T:
        # A server that restarts is back within seconds. One that lost sight of this process holds its lock until its
        # keep-alives tell; nobody can have taken the run up meanwhile, or its epoch says so. Who opens a store is told at
        # once: a wrong address and a run that is taken stay so.
        again, pause, deadline = False, _PAUSES[0], time.monotonic() + RECONNECT_SECONDS
        with faults(self.who):
            while True:
                try:
                    return once(again)
                except DBAPIError as error:
                    waits = passing(error) and (error.connection_invalidated or not opening)
                    if not waits or time.monotonic() >= deadline:
                        raise
                except Taken:
                    if opening or time.monotonic() >= deadline:
                        raise
                again = True
                time.sleep(pause)
                pause = min(2 * pause, _PAUSES[1])

    @contextmanager
    def _view(self) -> Iterator[Connection]:
        options: dict[str, Any] = {files.READING: True}
        if self.on_server:
            options = {"isolation_level": "REPEATABLE READ"}
        with self._engine.connect().execution_options(**options) as connection, connection.begin():
            yield connection

    def _recognise(self, connection: Connection) -> tuple[int, str] | None:
        return recognise(
            connection, self.who, header=journal_header, kind="journal", versions=(JOURNAL_GROWS_FROM, JOURNAL_VERSION),
            names=self._names, create=self._create,
        )  # fmt: skip
