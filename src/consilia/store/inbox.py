"""Messages that a site was sent: remembered before they are handled, their answers before they are sent."""

from sqlalchemy import Column, Engine, Integer, LargeBinary, String, Table, delete, func, insert, select, update

from consilia.core.errors import ProtocolError
from consilia.store.engine import reading, writing
from consilia.store.tables import site_metadata

ANSWERS = 4  # that are kept as they were sent; of older messages what they were is kept
REMEMBERED = 100_000  # messages; an older one is of a run that ended long ago

messages = Table(
    "messages",
    site_metadata,
    Column("number", Integer, primary_key=True),
    Column("id", LargeBinary, nullable=False, unique=True),
    Column("digest", String(64), nullable=False),
    Column("answer", LargeBinary),
)


class Inbox:
    """The part of a site's file that messages are remembered in.

    Args:
        engine: The site's database.
        who: How errors name it.

    Guarantees:
        A message that was answered is answered by the same bytes or not at all, whatever process asks, among the newest
        `REMEMBERED`; an older one is of a round that is over, which the ledger and the sums refuse by themselves.
    """

    def __init__(self, engine: Engine, who: str) -> None:
        self._engine = engine
        self._who = who

    def seen(self, id: bytes, digest: bytes) -> bytes | None:
        """Return the answer kept for a message; None if there is none yet.

        Raises:
            ProtocolError: If the message was seen with another digest, or was answered so long ago that its answer is gone.
            StoreError: If the file cannot be read.
        """
        with reading(self._engine, self._who) as connection:
            row = connection.execute(select(messages).where(messages.c.id == id)).one_or_none()
        if row is None:
            return None
        if row.digest != digest.hex():
            raise ProtocolError.of(self._who, needs="one message under an id", got="other bytes under it",
                                   hint="Somebody changed a message, or repeats ids: look at the coordinator")  # fmt: skip
        if row.answer == b"":
            raise ProtocolError.of(self._who, needs="a message that is not answered yet", got="one answered long ago",
                                   hint="Its round is over: go on with the next")  # fmt: skip
        return None if row.answer is None else bytes(row.answer)

    def begin(self, id: bytes, digest: bytes) -> None:
        """Remember a message before it is handled; one that was begun before stays as it is.

        Raises:
            StoreError: If the file cannot be written.
        """
        with writing(self._engine, self._who, "inbox.begin") as connection:
            if connection.execute(select(messages.c.id).where(messages.c.id == id)).first() is None:
                connection.execute(insert(messages).values(id=id, digest=digest.hex()))

    def keep(self, id: bytes, answer: bytes) -> None:
        """Remember the answer before it is sent.

        Raises:
            StoreError: If the file cannot be written.
        """
        with writing(self._engine, self._who, "inbox.keep") as connection:
            connection.execute(update(messages).where(messages.c.id == id).values(answer=answer))
            last = connection.execute(select(func.max(messages.c.number))).scalar_one()
            # An empty answer says that there was one.
            old = messages.c.number <= last - ANSWERS
            connection.execute(update(messages).where(old, messages.c.answer != b"").values(answer=b""))
            connection.execute(delete(messages).where(messages.c.number <= last - REMEMBERED))
