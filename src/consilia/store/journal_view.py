"""What a run's journal says, and its copy in a file of its own. Nothing here writes to the run."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, get_args

from sqlalchemy import Column, Connection, Row, Select, insert, select

from consilia.core.canonical import Json
from consilia.core.errors import StoreError
from consilia.store.database import Database
from consilia.store.faults import faults
from consilia.store.journal_tables import journal_records, journal_run, journal_state
from consilia.store.locks import Lock

Status = Literal["running", "done", "stopped", "failed"]
_Kind = TypeVar("_Kind")

# Not the epoch: a file of version 1 that is only read has none.
columns = select(*(column for column in journal_run.c if column.name != "epoch"))


class JournalView:
    """One run, in a file of its own or in a store of many.

    Attributes:
        run: Its id.
        plan_json: What was agreed on when it began.
        digest: Of its plan.
        status: running, done, stopped or failed.
        reason: Why it stopped or failed.
        round: The last round that was committed.
        result: What `finish` was given; None before.
    """

    def __init__(self, place: Path | str, run: str | None, *, create: bool, read_only: bool) -> None:
        self._db = Database(place, "the journal", run=run, create=create, read_only=read_only)
        self._who = self._db.who
        self._wanted = run
        self._lock: Lock | None = None
        if run is None and self._db.shared:
            self.close()
            raise StoreError.of(
                self._who, needs="the name of a run", got="none", hint="It holds many: name one of them"
            )

    def _load(self) -> None:
        def work(connection: Connection) -> tuple[Row[Any] | None, Sequence[Row[Any]]]:
            return connection.execute(self._of_run(columns, journal_run.c.run)).one_or_none(), self._parts(connection)

        row, state = self._db.read(work)
        if row is None or not state:
            raise StoreError.of(
                self._who, needs="a run" if self._wanted is None else f"run {self._wanted!r}",
                got="none: its process was killed before the run began", hint="Start the run again",
            )  # fmt: skip
        with faults(self._who):
            self._take(row)
        self._checked(state)

    @property
    def state(self) -> bytes:
        """Model and optimizer after the last round, read each time it is asked for: kept, it would be a second model.

        Raises:
            StoreError: If it changed on disk, or the store cannot be read.
        """
        return b"".join(part.state for part in self._checked(self._db.read(self._parts)))

    def _parts(self, connection: Connection) -> Sequence[Row[Any]]:
        chosen = select(journal_state.c.digest, journal_state.c.state)
        if self._db.version > 1:
            chosen = chosen.order_by(journal_state.c.part)
        return connection.execute(self._of_run(chosen, journal_state.c.run)).all()

    def _checked(self, parts: Sequence[Row[Any]]) -> Sequence[Row[Any]]:
        if parts and all(isinstance(part.state, bytes) for part in parts):
            whole = hashlib.sha256()
            for part in parts:
                whole.update(part.state)
            if {part.digest for part in parts} == {whole.hexdigest()}:
                return parts
        raise StoreError.of(self._who, needs="the state as it was written", got="other bytes",
                            hint="The file was changed on disk: restore it from a copy")  # fmt: skip

    def _take(self, row: Row[Any]) -> None:
        # SQLite keeps any kind of value in any column: what is not of its kind was not written by a journal.
        self.run: str = of_kind(row.run, str)
        self.plan_json: str = of_kind(row.plan, str)
        self.digest: str = of_kind(row.digest, str)
        if row.status not in get_args(Status):
            raise ValueError("not a status")
        self.status: Status = row.status
        self.reason: str | None = None if row.reason is None else of_kind(row.reason, str)
        self.round: int = of_kind(row.round, int)
        self.result: dict[str, Json] | None = None if row.result is None else of_kind(json.loads(row.result), dict)

    def close(self) -> None:
        """Let go of the store and of the run's lock."""
        self._db.close()
        if self._lock is not None:
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def records(self) -> list[dict[str, Any]]:
        """Return every committed round's record, in order."""
        with faults(self._who):
            return [of_kind(json.loads(text), dict) for text in self._texts(journal_records.c.record)]

    def charges(self) -> list[dict[str, Json]]:
        """Return the coordinator's copy of every charge, in order of round."""
        with faults(self._who):
            return [
                _charge(charge)
                for text in self._texts(journal_records.c.charges)
                for charge in of_kind(json.loads(text), list)
            ]

    def heads(self) -> dict[str, str]:
        """Return, per site, the newest chain head it reported: the `known` of `SiteStore.verify`."""
        # A site that was asked and said nothing since a resume has an empty one, which makes none known before unknown.
        return {str(charge["site"]): str(charge["head"]) for charge in self.charges() if charge["head"]}

    def _texts(self, column: Column[str]) -> Sequence[str]:
        chosen = select(column).order_by(journal_records.c.round)
        if self._db.version > 1:
            chosen = self._of_run(chosen, journal_records.c.run)
        return self._db.read(lambda connection: connection.execute(chosen).scalars().all())

    def _of_run(self, chosen: Select[Any], column: Column[str]) -> Select[Any]:
        return chosen if self._wanted is None else chosen.where(column == self._wanted)

    def export(self, path: Path) -> None:
        """Copy the run as it stands to a file of its own, in place of one that is there, for who reads files.

        Raises:
            StoreError: If the store cannot be read, or the file not be written.
        """
        aside = path.with_name(path.name + ".part")
        with faults(f"the journal {path}"):
            for left in (aside, Path(f"{aside}-wal"), Path(f"{aside}-shm")):
                left.unlink(missing_ok=True)
        tables = (journal_run, journal_state, journal_records)
        rows = self._db.read(
            lambda connection: [
                connection.execute(select(table).where(table.c.run == self.run)).mappings().all() for table in tables
            ]
        )
        copy = Database(aside, "the journal", run=self.run, create=True)
        try:
            copy.upgrade()

            def work(connection: Connection, _again: bool) -> None:
                for table, found in zip(tables, rows, strict=True):
                    if found:
                        connection.execute(insert(table), [dict(row) for row in found])

            copy.write("journal.export", work)
        finally:
            copy.close()
        with faults(f"the journal {path}"):
            aside.replace(path)


def of_kind(value: Any, kind: type[_Kind]) -> _Kind:
    """Return a value that is of its kind.

    Raises:
        TypeError: If it is not: nobody here wrote it.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{type(value).__name__} where a journal keeps {kind.__name__}")
    return value


def _charge(value: Any) -> dict[str, Json]:
    charge: dict[str, Json] = of_kind(value, dict)
    of_kind(charge["site"], str)
    of_kind(charge["head"], str)
    return charge
