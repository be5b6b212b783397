"""The coordinator's journal of one run: model, record and charges of a round are one transaction.

After a kill at any moment the run stands at round r or r + 1, never between.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Self

from sqlalchemy import Connection, Row, bindparam, insert, select, update

from consilia.core.canonical import Json, canonical_bytes
from consilia.core.errors import StoreError
from consilia.core.update import Bytes
from consilia.store.journal_state import write_state
from consilia.store.journal_tables import journal_records, journal_run, queue
from consilia.store.journal_view import JournalView, Status, columns, of_kind

__all__ = ["Journal", "Status"]

_put_record = insert(journal_records)
# Every write to a run begins with this: only the process that took it up last may, and only from the round it stands at.
_go_on = update(journal_run).where(
    journal_run.c.run == bindparam("b_run"),
    journal_run.c.epoch == bindparam("b_epoch"),
    journal_run.c.round == bindparam("b_round"),
    journal_run.c.status == "running",
)
_queued = update(queue).where(queue.c.run == bindparam("b_run"))


class Journal(JournalView):
    """One run, in a file of its own or in a store of many. One process at a time may write it; others may read.

    Guarantees:
        What a method wrote is on disk when it returns, also if the server was restarted meanwhile: the transaction is looked
        for before it is tried again. A process that lost the run to another writes nothing more to it.
    """

    def __init__(self, place: Path | str, run: str | None, *, create: bool, read_only: bool) -> None:
        super().__init__(place, run, create=create, read_only=read_only)
        self._epoch = 1
        if read_only:
            return
        try:
            self._lock = self._db.lock(run)
            # Under the lock: a process of an older release may not find its tables changed.
            self._db.upgrade()
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(cls, place: Path | str, *, run: str, plan_json: str, digest: str, state: Sequence[Bytes]) -> Self:
        """Begin a run at round 0 with its first state.

        Args:
            place: A store of many runs; or the path of a file, made here, for this run alone.
            run: Its name.
            plan_json: What was agreed on, as a text.
            digest: Of the plan.
            state: Model and optimizer before the first round, in pieces.

        Raises:
            StoreError: If this run was begun already, or it cannot be written.
        """
        journal = cls(place, run, create=True, read_only=False)
        try:
            begun = {"run": run, "plan": plan_json, "digest": digest, "status": "running", "round": 0, "epoch": 1}

            def work(connection: Connection, again: bool) -> None:
                found = connection.execute(columns.where(journal_run.c.run == run)).first()
                if found is not None and again and (found.plan, found.digest, found.round) == (plan_json, digest, 0):
                    return
                if found is not None:
                    raise StoreError.of(
                        journal._who, needs="a path without a run", got=f"a journal of run {run!r}",
                        hint="Resume it, or choose another run name",
                    )  # fmt: skip
                connection.execute(insert(journal_run).values(begun))
                write_state(connection, run, state)
                if journal._db.shared:
                    _leave_queue(connection, journal._who, run)

            journal._db.write("journal.create", work)
            journal._load()
        except BaseException:
            journal.close()
            raise
        return journal

    @classmethod
    def open(cls, place: Path | str, run: str | None = None, *, read_only: bool = False) -> Self:
        """Open a run that was begun.

        Args:
            place: A store of many runs, or the path of the run's own file.
            run: Which one; a file of one run needs no name.
            read_only: Do not take the run's lock, and change nothing: for a report on a run that another process is writing.

        Raises:
            StoreError: If there is no such run, another process runs it, or the store cannot be used.
        """
        journal = cls(place, run, create=False, read_only=read_only)
        try:
            journal._load()
            if not read_only and journal.status == "running":
                journal._claim()
        except BaseException:
            journal.close()
            raise
        return journal

    def _claim(self) -> None:
        mine = update(journal_run).where(journal_run.c.run == self.run).values(epoch=journal_run.c.epoch + 1)
        epoch = select(journal_run.c.epoch).where(journal_run.c.run == self.run)

        def work(connection: Connection, _again: bool) -> int:
            connection.execute(mine)
            return of_kind(connection.execute(epoch).scalar_one(), int)

        self._epoch = self._db.write("journal.claim", work, held=self._lock)

    def commit_round(
        self,
        round: int,
        *,
        state: Sequence[Bytes],
        record: Mapping[str, Json],
        charges: Sequence[Mapping[str, Json]],
    ) -> None:
        """Commit one round: the state after it, its record, and the coordinator's copy of the charges.

        Args:
            round: The round after the last one committed.
            state: Model and optimizer after the round, in pieces; replaces the state before.
            record: The round's record.
            charges: One mapping per charge, with at least "site" and "head" (the site's chain after it).

        Raises:
            StoreError: If the round is out of turn, the run has ended or was taken up by another process, or the store
                cannot be written.
        """
        self._require_running()
        if round != self.round + 1:
            raise StoreError.of(
                self._who,
                needs=f"round {self.round + 1} next",
                got=f"round {round}",
                hint="Open the journal again",
            )
        entry = {"run": self.run, "round": round, "record": _text(record),
                 "charges": _text([dict(charge) for charge in charges])}  # fmt: skip

        def work(connection: Connection, again: bool) -> None:
            if not self._goes_on(connection, again, round=round):
                return
            connection.execute(_put_record, entry)
            write_state(connection, self.run, state)
            if self._db.shared:
                connection.execute(_queued, {"b_run": self.run, "round": round})

        self._db.write("journal.commit", work, held=self._lock)
        self.round = round

    def stage(self, state: Sequence[Bytes]) -> None:
        """Write down a state before its round is committed: a killed run goes on from it.

        Args:
            state: What is about to be shown outside, in pieces; `commit_round` of the same round follows.

        Raises:
            StoreError: If the run has ended or was taken up by another process, or the store cannot be written.
        """
        self._require_running()

        def work(connection: Connection, again: bool) -> None:
            self._goes_on(connection, again, round=self.round)
            write_state(connection, self.run, state)

        self._db.write("journal.stage", work, held=self._lock)

    def finish(self, status: Status, reason: str | None, result: Mapping[str, Json]) -> None:
        """Put the run into a terminal state, and its place in the queue with it.

        Raises:
            StoreError: If it has ended already or was taken up by another process, the status is not terminal, or the store
                cannot be written.
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

        def work(connection: Connection, again: bool) -> None:
            self._goes_on(connection, again, round=self.round, status=status, reason=reason, result=raw)
            if self._db.shared:
                connection.execute(_queued, {"b_run": self.run, "status": status, "reason": reason})

        self._db.write("journal.finish", work, held=self._lock)
        self.status, self.reason, self.result = status, reason, json.loads(raw)

    def _goes_on(self, connection: Connection, again: bool, **values: Json) -> bool:
        """Write the run's row if it is this process's to write; False where a try that was cut off had written it.

        Raises:
            StoreError: If the run is no longer this process's, or stands elsewhere.
        """
        where = {"b_run": self.run, "b_epoch": self._epoch, "b_round": self.round}
        if connection.execute(_go_on, {**where, **values}).rowcount == 1:
            return True
        found = connection.execute(
            columns.add_columns(journal_run.c.epoch).where(journal_run.c.run == self.run)
        ).one_or_none()
        if found is not None and found.epoch == self._epoch and again:
            wanted = {"status": "running", **values}
            if all(getattr(found, name) == value for name, value in wanted.items()):
                return False
        self._explain(found)

    def _explain(self, found: Row[Any] | None) -> NoReturn:
        if found is not None and found.epoch != self._epoch:
            raise StoreError.of(
                self._who, needs=f"run {self.run!r} to be this process's", got="one that another process took up",
                hint="Leave it to the other, or end that one and resume",
            )  # fmt: skip
        if found is not None and found.status != "running":
            raise StoreError.of(self._who, needs="a run that is open for writing", got=f"a run that is {found.status}",
                                hint="Start a new run")  # fmt: skip
        raise StoreError.of(
            self._who, needs=f"run {self.run!r} at round {self.round}, where it was left",
            got="none" if found is None else f"round {found.round}",
            hint="The store was restored from a copy: resume from it; the sites' ledgers keep what was spent",
        )  # fmt: skip

    def _require_running(self) -> None:
        if self._lock is None or self.status != "running":
            raise StoreError.of(
                self._who, needs="a run that is open for writing",
                got="one opened to read" if self._lock is None else f"a run that is {self.status}",
                hint="Open it without read_only" if self._lock is None else "Start a new run",
            )  # fmt: skip


def _leave_queue(connection: Connection, who: str, run: str) -> None:
    status = connection.execute(select(queue.c.status).where(queue.c.run == run).with_for_update()).scalar()
    if status not in (None, "queued"):
        raise StoreError.of(
            who, needs=f"run {run!r} to be queued", got=f"a run that is {status}", hint="Submit a new one"
        )
    connection.execute(_queued, {"b_run": run, "status": "running"})


def _text(value: Json) -> str:
    return canonical_bytes(value).decode()
