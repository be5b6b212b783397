"""The tables of the coordinator's store, in SQL that SQLite and PostgreSQL share: its runs, their rounds, and the queue.

A new store gets these; an older one is brought to them by `migrations`, and a test holds the two equal.
"""

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    event,
)

from consilia.store.tables import header_of

JOURNAL_VERSION = 2
JOURNAL_GROWS_FROM = 1

journal_metadata = MetaData()
journal_header = header_of(journal_metadata)

# Where Alembic writes down how far a store was brought; the header's version says the same to releases without it.
revision = Table("consilia_revision", journal_metadata, Column("version_num", String(32), primary_key=True))

journal_run = Table(
    "run",
    journal_metadata,
    Column("run", Text, primary_key=True),
    Column("plan", Text, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("status", String(16), nullable=False),
    Column("reason", Text),
    Column("round", BigInteger, nullable=False),
    Column("result", Text),
    # Counts the processes that took the run up: what an earlier one still tries to write is refused.
    Column("epoch", BigInteger, nullable=False, server_default="0"),
)

# In a table of its own: updating a short row beside a large blob would write the blob again.
journal_state = Table(
    "state",
    journal_metadata,
    Column("run", Text, ForeignKey(journal_run.c.run), primary_key=True),
    Column("part", BigInteger, primary_key=True, autoincrement=False),
    Column("digest", String(64), nullable=False),  # of all parts together, in each
    Column("state", LargeBinary, nullable=False),
)
# Weights do not compress, and trying costs more than writing them.
UNCOMPRESSED = "ALTER TABLE state ALTER COLUMN state SET STORAGE EXTERNAL"
event.listen(
    journal_state,
    "after_create",
    DDL(UNCOMPRESSED).execute_if(dialect="postgresql"),  # type: ignore[no-untyped-call]
)

journal_records = Table(
    "records",
    journal_metadata,
    Column("run", Text, ForeignKey(journal_run.c.run), primary_key=True),
    Column("round", BigInteger, primary_key=True, autoincrement=False),
    Column("record", Text, nullable=False),
    Column("charges", Text, nullable=False),  # the coordinator's copy; the sites' ledgers are the authority
)

queue = Table(
    "queue",
    journal_metadata,
    Column("position", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("run", Text, nullable=False, unique=True),
    Column("plan", Text, nullable=False),
    Column("submitter", Text, nullable=False),
    Column("submitted", String(32), nullable=False),
    Column("status", String(16), nullable=False),
    Column("reason", Text),
    Column("stop", Boolean, nullable=False),
    Column("round", BigInteger, nullable=False),
    Column("holder", String(64)),  # who has the lease
    Column("until", Float(53)),  # seconds on the database's own clock; PostgreSQL only
    Column("held_from", BigInteger, nullable=False),  # the round that stood when the holder took it
    Column("lost", Integer, nullable=False),  # holders lost in a row without a round between
)
