"""The queue of submitted runs: what waits, what runs and how each ended. It survives its coordinators."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from sqlalchemy import Connection, Row, select, text, update

from consilia.core.errors import PlanError, StoreError
from consilia.store.database import Database
from consilia.store.journal_tables import journal_run, queue
from consilia.store.journal_view import Status
from consilia.store.leases import leases_of

_log = logging.getLogger("consilia.store")
LOSSES = 3  # coordinators in a row that may be lost with a run before a round of it is done
Standing = Literal["queued"] | Status
_OPEN = ("queued", "running")
# Both databases read this; SQLAlchemy has it for each under another name.
_submit = text(
    "INSERT INTO queue (run, plan, submitter, submitted, status, stop, round, held_from, lost)"
    " VALUES (:run, :plan, :by, :at, 'queued', false, 0, 0, 0) ON CONFLICT (run) DO NOTHING"
)


@dataclass(frozen=True)
class QueuedRun:
    """A submitted run.

    Attributes:
        run: Its id.
        plan_json: The plan, as it was submitted.
        status: queued, running (a round 0 of it is written down), done, stopped or failed.
        reason: Why it stopped or failed.
        submitted: When, in UTC, by the clock of the process that took it, for people to read.
        by: Who submitted it.
        round: The last round that was committed.
    """

    run: str
    plan_json: str
    status: Standing
    reason: str | None
    submitted: str
    by: str
    round: int


class RunQueue:
    """All runs of a store; several coordinators may serve it.

    Args:
        place: The store: a file, made where there is none, or a database by URL.

    Raises:
        StoreError: If it cannot be used.

    Guarantees:
        One coordinator at a time works on a run; what another still writes is refused (`Journal`). A run that takes its
        coordinator down with it ends as failed at the third in a row, so while any coordinator serves, every run ends.
    """

    def __init__(self, place: Path | str) -> None:
        self._db = Database(place, "the store", run=None, create=True, many=True)
        try:
            self._db.upgrade()
        except BaseException:
            self._db.close()
            raise
        self._leases = leases_of(self._db)

    def close(self) -> None:
        """Let go of the store."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def submit(self, run: str, plan_json: str, *, by: str) -> QueuedRun:
        """Put a run at the end of the queue, or find it there.

        Args:
            run: Its id, chosen by who submits: sent again, the run is found and not begun twice.
            plan_json: The plan.
            by: Who submits it.

        Raises:
            PlanError: If the run is there with another plan.
            StoreError: If the store cannot be written.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")

        def work(connection: Connection, _again: bool) -> QueuedRun:
            connection.execute(_submit, {"run": run, "plan": plan_json, "by": by, "at": now})
            return _queued(connection.execute(_of(run)).one())

        found = self._db.write("queue.submit", work)
        if found.plan_json != plan_json:
            raise PlanError.of(f"run {run!r}", needs="the plan it was submitted with", got="another",
                               hint="Submit the changed plan under an id of its own")  # fmt: skip
        return found

    def all(self) -> list[QueuedRun]:
        """Return every run, in the order of submission.

        Raises:
            StoreError: If the store cannot be read.
        """
        chosen = select(queue).order_by(queue.c.position)
        return self._db.read(lambda connection: [_queued(row) for row in connection.execute(chosen)])

    def open(self) -> list[QueuedRun]:
        """Return the runs that wait for a coordinator: queued, or begun by one that is gone; in the order of submission.

        Raises:
            StoreError: If the store cannot be read.
        """
        chosen = select(queue).where(queue.c.status.in_(_OPEN)).order_by(queue.c.position)
        return self._db.read(
            lambda connection: [
                _queued(row) for row in connection.execute(chosen).all() if not self._taken(connection, row)
            ]
        )

    @contextmanager
    def held(self, run: str) -> Iterator[None]:
        """Work on a run: no other coordinator takes it up until the block ends or this process does.

        Raises:
            StoreError: If another coordinator works on it, it has ended, or it ends now because too many coordinators in a
                row were lost with it; or if the store cannot be written.
        """
        with self._leases.kept(run) as name:
            lost = self._db.write("queue.take", lambda connection, _again: self._take(connection, run, name))
            if lost:
                raise StoreError.of(f"run {run!r}", needs="a coordinator that survives it", got=lost,
                                    hint="Look at the coordinators' logs, then submit it again")  # fmt: skip
            try:
                yield
            finally:
                mine = update(queue).where(queue.c.run == run, queue.c.holder == name)
                free = mine.values(holder=None, until=None, lost=0)
                try:
                    self._db.write("queue.leave", lambda connection, _again: connection.execute(free))
                except StoreError as error:  # what happened inside counts; the lease ends by itself
                    _log.warning("the lease of run %s was not given back: %s", run, error)

    def _take(self, connection: Connection, run: str, name: str) -> str | None:
        row = self._row(connection, run)
        if row.status not in _OPEN:
            raise StoreError.of(f"run {run!r}", needs="to be queued or running", got=f"a run that is {row.status}",
                                hint="Submit a new one")  # fmt: skip
        if row.holder != name and self._taken(connection, row):
            raise StoreError.of(f"run {run!r}", needs="one coordinator", got="another that works on it",
                                hint="Leave it to that one, or end it")  # fmt: skip
        lost = 0
        if row.holder not in (None, name):  # a holder that left in order left no name
            lost = row.lost + 1 if row.round == row.held_from else 1
        if lost >= LOSSES:
            why = f"{lost} coordinators in a row were lost before round {row.round + 1} was done"
            _end(connection, run, "failed", why)
            return why
        mine = {"holder": name, "until": self._leases.until(connection), "held_from": row.round, "lost": lost}
        connection.execute(update(queue).where(queue.c.run == run).values(mine))
        return None

    def end(self, run: str, status: Status, reason: str | None) -> None:
        """Put a run into a terminal state that its rounds do not lead to. One that has ended stays as it is.

        Raises:
            StoreError: If there is no such run, another coordinator works on it, or the store cannot be written.
        """

        def work(connection: Connection, _again: bool) -> None:
            row = self._row(connection, run)
            if row.status in _OPEN:
                if self._taken(connection, row):
                    raise StoreError.of(f"run {run!r}", needs="its coordinator to end it", got="another",
                                        hint="Ask it to stop: consilia stop")  # fmt: skip
                _end(connection, run, status, reason)

        self._db.write("queue.end", work)

    def ask_stop(self, run: str, *, by: str) -> None:
        """Ask for the end of a run; its coordinator ends it after the round that is under way.

        Raises:
            StoreError: If there is no such run, or the store cannot be written.
        """

        def work(connection: Connection, _again: bool) -> None:
            row = self._row(connection, run)
            if row.status in _OPEN and not row.stop:
                asked = update(queue).where(queue.c.run == run)
                connection.execute(asked.values(stop=True, reason=f"asked to stop by {by}"))

        self._db.write("queue.stop", work)

    def stop_asked(self, run: str) -> bool:
        """Say whether a run was asked to stop.

        Raises:
            StoreError: If the store cannot be read.
        """
        chosen = select(queue.c.stop).where(queue.c.run == run)
        return bool(self._db.read(lambda connection: connection.execute(chosen).scalar()))

    def _row(self, connection: Connection, run: str) -> Row[Any]:
        row = connection.execute(_of(run).with_for_update()).one_or_none()
        if row is None:
            raise StoreError.of(f"run {run!r}", needs="to be in the queue", got="none of that id",
                                hint="consilia status lists the runs")  # fmt: skip
        return row

    def _taken(self, connection: Connection, row: Row[Any]) -> bool:
        return row.holder is not None and self._leases.alive(connection, row)


def _of(run: str) -> Any:
    return select(queue).where(queue.c.run == run)


def _queued(row: Row[Any]) -> QueuedRun:
    return QueuedRun(row.run, row.plan, row.status, row.reason, row.submitted, row.submitter, row.round)


def _end(connection: Connection, run: str, status: Status, reason: str | None) -> None:
    connection.execute(
        update(queue).where(queue.c.run == run).values(status=status, reason=reason, holder=None, until=None)
    )
    # Its journal with it, and with a new epoch: a coordinator that was taken for dead writes no more.
    begun = update(journal_run).where(journal_run.c.run == run, journal_run.c.status == "running")
    connection.execute(begun.values(status=status, reason=reason, epoch=journal_run.c.epoch + 1))
