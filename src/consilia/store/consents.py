"""What a site agreed to: runs, plans that a steward approved, plans that wait, and what was refused and why."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Column, Engine, Float, LargeBinary, String, Table, Text, delete, insert, select, update

from consilia.core.errors import StoreError
from consilia.store.engine import reading, writing
from consilia.store.tables import site_metadata

offers = Table(
    "offers",
    site_metadata,
    Column("run", Text, primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("answer", String(16), nullable=False),  # accepted, waiting, refused, or how an accepted run ended
    Column("offer", LargeBinary, nullable=False),
    Column("clauses", Text, nullable=False),
    Column("at", Float, nullable=False),
)

approvals = Table(
    "approvals",
    site_metadata,
    Column("digest", String(64), primary_key=True),
    Column("at", Float, nullable=False),
)


@dataclass(frozen=True)
class Offered:
    """A run that was offered to this site.

    Attributes:
        run: Its id.
        digest: Of its plan.
        answer: accepted, waiting or refused; done, stopped or failed where a run that was agreed to has ended.
        offer: The offer, as it came.
        clauses: What its plan broke, or what it waits for.
        at: Seconds since 1970, by this machine's clock, for people to read.
    """

    run: str
    digest: str
    answer: str
    offer: bytes
    clauses: tuple[str, ...]
    at: float


class Consents:
    """The part of a site's file that consent is kept in.

    Args:
        engine: The site's database.
        who: How errors name it.

    Guarantees:
        A run that was agreed to keeps its offer for good: none can take its name.
    """

    def __init__(self, engine: Engine, who: str) -> None:
        self._engine = engine
        self._who = who

    def note(self, run: str, digest: str, answer: str, offer: bytes, clauses: Sequence[str] = ()) -> None:
        """Store what was answered to an offer, in place of an earlier answer that was no agreement.

        Raises:
            StoreError: If the run was agreed to with another plan, or the file cannot be written.
        """
        values = {
            "digest": digest,
            "answer": answer,
            "offer": offer,
            "clauses": json.dumps(list(clauses)),
            "at": time.time(),
        }
        with writing(self._engine, self._who, "consent.note") as connection:
            row = connection.execute(select(offers).where(offers.c.run == run)).one_or_none()
            if row is not None and row.answer not in ("waiting", "refused"):
                if (row.answer, row.digest, bytes(row.offer)) == (answer, digest, offer):
                    return
                raise StoreError.of(self._who, needs=f"another name than {run!r}", got="one of a run that was agreed to",
                                    hint="A run has one plan: submit the other one as a run of its own")  # fmt: skip
            if row is None:
                connection.execute(insert(offers).values(run=run, **values))
            else:
                connection.execute(update(offers).where(offers.c.run == run).values(**values))

    def accepted(self, run: str) -> bytes | None:
        """Return the offer of a run that was agreed to and has not ended; None for any other."""
        chosen = select(offers.c.offer).where(offers.c.run == run, offers.c.answer == "accepted")
        with reading(self._engine, self._who) as connection:
            offer = connection.execute(chosen).scalar_one_or_none()
        return None if offer is None else bytes(offer)

    def close(self, run: str, status: str) -> None:
        """Store how a run that was agreed to ended; closed again, the first status stands."""
        with writing(self._engine, self._who, "consent.close") as connection:
            connection.execute(
                update(offers).where(offers.c.run == run, offers.c.answer == "accepted").values(answer=status)
            )

    def approve(self, digest: str) -> None:
        """Store a steward's approval of a plan; it counts from the next offer on."""
        with writing(self._engine, self._who, "consent.approve") as connection:
            if connection.execute(select(approvals).where(approvals.c.digest == digest)).first() is None:
                connection.execute(insert(approvals).values(digest=digest, at=time.time()))

    def withdraw(self, digest: str) -> None:
        """Take back an approval; what was agreed to stays agreed to."""
        with writing(self._engine, self._who, "consent.withdraw") as connection:
            connection.execute(delete(approvals).where(approvals.c.digest == digest))

    def approved(self) -> frozenset[str]:
        """Return the digests of all plans that a steward approved."""
        with reading(self._engine, self._who) as connection:
            return frozenset(connection.execute(select(approvals.c.digest)).scalars())

    def all(self) -> list[Offered]:
        """Return every run that was offered, the newest last.

        Raises:
            StoreError: If the file cannot be read.
        """
        with reading(self._engine, self._who) as connection:
            rows = connection.execute(select(offers).order_by(offers.c.at)).all()
            return [
                Offered(row.run, row.digest, row.answer, bytes(row.offer), tuple(json.loads(row.clauses)), row.at)
                for row in rows
            ]
