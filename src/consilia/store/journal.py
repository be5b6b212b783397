"""The coordinator's journal of one run: model, record and charges of a round are one transaction.

After a kill at any moment the run stands at round r or r + 1, never between.
"""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, get_args

from sqlalchemy import Row, insert, select, update

from consilia.core.canonical import Json, canonical_bytes, digest_bytes
from consilia.core.errors import StoreError
from consilia.store.engine import faults, open_engine, reading, writing
from consilia.store.tables import (
    JOURNAL_VERSION,
    journal_header,
    journal_metadata,
    journal_records,
    journal_run,
    journal_state,
)

Status = Literal["running", "done", "stopped", "failed"]
_Kind = TypeVar("_Kind")

_put_record = insert(journal_records)
_set_run = update(journal_run)
_put_state = insert(journal_state)
_replace_state = update(journal_state)  # in place: faster than delete and insert, and the file stays flat


class Journal:
    """One run's file. One process at a time may write it; others may open it to read."""

    def __init__(self, path: Path, name: str | None, *, read_only: bool) -> None:
        self.path = path
        self._who = f"the journal {path}"
        self._engine = open_engine(
            path, who=self._who, metadata=journal_metadata, header=journal_header, kind="journal",
            version=JOURNAL_VERSION, name=name, read_only=read_only,
        )  # fmt: skip
        try:
            self._lock = None if read_only else _lock(path, self._who)
        except BaseException:
            self._engine.dispose()
            raise

    @classmethod
    def create(cls, path: Path, *, run: str, plan_json: str, digest: str, state: bytes) -> Self:
        """Begin a run at round 0 with its first state.

        Raises:
            StoreError: If there is a run in this file already, or it cannot be written.
        """
        journal = cls(path, run, read_only=False)
        try:
            with writing(journal._engine, journal._who, "journal.create") as connection:
                if connection.execute(select(journal_run.c.run)).first() is not None:
                    raise StoreError.of(
                        journal._who, needs="a path without a run", got=f"a journal of run {run!r}",
                        hint="Resume it, or choose another run name",
                    )  # fmt: skip
                connection.execute(insert(journal_run).values(
                    run=run, plan=plan_json, digest=digest, status="running", round=0,
                ))  # fmt: skip
                connection.execute(_put_state, {"run": run, "digest": digest_bytes(state), "state": state})
            journal._load()
        except BaseException:
            journal.close()
            raise
        return journal

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False) -> Self:
        """Open a run that was begun.

        Args:
            path: The file.
            read_only: Do not take the run's lock: for a report on a run that another process is writing.

        Raises:
            StoreError: If there is no run in it, another process runs it, or the file cannot be used.
        """
        journal = cls(path, None, read_only=read_only)
        try:
            journal._load()
        except BaseException:
            journal.close()
            raise
        return journal

    def _load(self) -> None:
        with reading(self._engine, self._who) as connection:
            row = connection.execute(select(journal_run)).one_or_none()
            state = connection.execute(select(journal_state)).one_or_none()
            if row is not None:
                self._take(row)
        if row is None or state is None:
            raise StoreError.of(
                self._who, needs="a run", got="none: its process was killed before the run began",
                hint="Start the run again",
            )  # fmt: skip
        if not isinstance(state.state, bytes) or digest_bytes(state.state) != state.digest:
            raise StoreError.of(
                self._who, needs=f"a state with digest {state.digest[:12]}", got="other bytes",
                hint="The file was changed on disk: restore it from a copy",
            )  # fmt: skip
        self.state: bytes = state.state

    def _take(self, row: Row[Any]) -> None:
        # SQLite keeps any kind of value in any column: what is not of its kind was not written by a journal.
        self.run: str = _of_kind(row.run, str)
        self.plan_json: str = _of_kind(row.plan, str)
        self.digest: str = _of_kind(row.digest, str)
        if row.status not in get_args(Status):
            raise ValueError("not a status")
        self.status: Status = row.status
        self.reason: str | None = None if row.reason is None else _of_kind(row.reason, str)
        self.round: int = _of_kind(row.round, int)
        self.result: dict[str, Json] | None = None if row.result is None else _of_kind(json.loads(row.result), dict)

    def close(self) -> None:
        """Let go of the file and of the run's lock."""
        self._engine.dispose()
        if self._lock is not None:
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def commit_round(
        self,
        round: int,
        *,
        state: bytes,
        record: Mapping[str, Json],
        charges: Sequence[Mapping[str, Json]],
    ) -> None:
        """Commit one round: the state after it, its record, and the coordinator's copy of the charges.

        Args:
            round: The round after the last one committed.
            state: Model and optimizer after the round; replaces the state before.
            record: The round's record.
            charges: One mapping per charge, with at least "site" and "head" (the site's chain after it).

        Raises:
            StoreError: If the round is out of turn, the run has ended, or the file cannot be written.
        """
        self._require_running()
        if round != self.round + 1:
            raise StoreError.of(
                self._who,
                needs=f"round {self.round + 1} next",
                got=f"round {round}",
                hint="Open the journal again",
            )
        raw_record, raw_charges = _text(record), _text([dict(charge) for charge in charges])
        state_digest = digest_bytes(state)
        with writing(self._engine, self._who, "journal.commit") as connection:
            connection.execute(_put_record, {"round": round, "record": raw_record, "charges": raw_charges})
            connection.execute(_replace_state, {"digest": state_digest, "state": state})
            connection.execute(_set_run, {"round": round})
        self.round, self.state = round, state

    def stage(self, state: bytes) -> None:
        """Write down a state before its round is committed: a killed run goes on from it.

        Args:
            state: What is about to be shown outside; `commit_round` of the same round follows.

        Raises:
            StoreError: If the run has ended, or the file cannot be written.
        """
        self._require_running()
        with writing(self._engine, self._who, "journal.stage") as connection:
            connection.execute(_replace_state, {"digest": digest_bytes(state), "state": state})
        self.state = state

    def finish(self, status: Status, reason: str | None, result: Mapping[str, Json]) -> None:
        """Put the run into a terminal state.

        Raises:
            StoreError: If it has ended already, the status is not terminal, or the file cannot be written.
        """
        self._require_running()
        if status not in ("done", "stopped", "failed"):
            raise StoreError.of(
                self._who,
                needs="a status of done, stopped or failed",
                got=repr(status),
                hint="Name one of them",
            )
        raw = _text(result)
        with writing(self._engine, self._who, "journal.finish") as connection:
            connection.execute(_set_run, {"status": status, "reason": reason, "result": raw})
        self.status, self.reason, self.result = status, reason, json.loads(raw)

    def records(self) -> list[dict[str, Any]]:
        """Return every committed round's record, in order."""
        with reading(self._engine, self._who) as connection:
            rows = connection.execute(select(journal_records.c.record).order_by(journal_records.c.round))
            return [_of_kind(json.loads(text), dict) for text in rows.scalars()]

    def charges(self) -> list[dict[str, Json]]:
        """Return the coordinator's copy of every charge, in order of round."""
        with reading(self._engine, self._who) as connection:
            rows = connection.execute(select(journal_records.c.charges).order_by(journal_records.c.round))
            return [_charge(charge) for text in rows.scalars() for charge in _of_kind(json.loads(text), list)]

    def heads(self) -> dict[str, str]:
        """Return, per site, the newest chain head it reported: the `known` of `SiteStore.verify`."""
        # A site that was asked and said nothing since a resume has an empty one, which makes none known before unknown.
        return {str(charge["site"]): str(charge["head"]) for charge in self.charges() if charge["head"]}

    def _require_running(self) -> None:
        if self._lock is None or self.status != "running":
            raise StoreError.of(
                self._who, needs="a run that is open for writing",
                got="one opened to read" if self._lock is None else f"a run that is {self.status}",
                hint="Open it without read_only" if self._lock is None else "Start a new run",
            )  # fmt: skip


def _of_kind(value: Any, kind: type[_Kind]) -> _Kind:
    if not isinstance(value, kind):
        raise TypeError(f"{type(value).__name__} where a journal keeps {kind.__name__}")
    return value


def _charge(value: Any) -> dict[str, Json]:
    charge: dict[str, Json] = _of_kind(value, dict)
    _of_kind(charge["site"], str)
    _of_kind(charge["head"], str)
    return charge


def _text(value: Json) -> str:
    return canonical_bytes(value).decode()


def _lock(path: Path, who: str) -> sqlite3.Connection:
    """Hold the run for this process; the system lets go of it when the process ends, however it ends."""
    with faults(who):
        lock = sqlite3.connect(f"{path}.lock", timeout=0, isolation_level=None, check_same_thread=False)
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            lock.close()
            if error.sqlite_errorname.startswith("SQLITE_BUSY"):
                raise StoreError.of(
                    who, needs="to be run by one process", got="another process that runs it now",
                    hint="Wait for it or end it, then resume",
                ) from None  # fmt: skip
            raise
    return lock
