"""The tables of a site's file.

The chain in `entries` is the only truth about a budget: no table repeats a sum of it, so none can disagree.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

SITE_VERSION = 4
SITE_GROWS_FROM = 2  # files of this version lack tables only, which are added

site_metadata = MetaData()


def header_of(metadata: MetaData) -> Table:
    """Return the table of one row that says what a database is: a foreign or newer one is refused before anything changes."""
    return Table(
        "consilia_store",
        metadata,
        Column("kind", String(16), primary_key=True),
        Column("version", Integer, nullable=False),
        Column("name", Text, nullable=False),
    )


site_header = header_of(site_metadata)

entries = Table(
    "entries",
    site_metadata,
    Column("population", String(64), primary_key=True),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String(16), nullable=False),
    Column("run", Text, nullable=False),
    Column("round", BigInteger, nullable=False),
    Column("body", Text, nullable=False),  # canonical JSON
    Column("previous", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
)
Index("entries_by_run", entries.c.run)

# One row: a key of the site's own. A digest under it tells nobody else whether they guess rows or releases right.
site_key = Table(
    "site_key", site_metadata, Column("name", String(16), primary_key=True), Column("key", LargeBinary, nullable=False)
)

# The newest release of a run and purpose, as it was or will be sent; `position` is its commit in the chain.
sealed = Table(
    "sealed",
    site_metadata,
    Column("run", Text, primary_key=True),
    Column("purpose", String(16), primary_key=True),
    Column("round", BigInteger, nullable=False),
    Column("model_digest", String(64), nullable=False),
    Column("release_digest", String(64), nullable=False),  # plain: it stays here; the chain holds it under the key
    Column("position", BigInteger),  # None: a run without a charge
    Column("release", LargeBinary, nullable=False),
)

local_states = Table(
    "local_states",
    site_metadata,
    Column("run", Text, primary_key=True),
    Column("round", BigInteger, primary_key=True, autoincrement=False),
    Column("digest", String(64), nullable=False),
    Column("state", LargeBinary, nullable=False),
)

# Where a secure sum stands, one row a purpose: secret keys and shares among it.
sessions = Table(
    "sessions",
    site_metadata,
    Column("run", Text, primary_key=True),
    Column("purpose", String(16), primary_key=True),
    Column("round", BigInteger, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("state", LargeBinary, nullable=False),
)

# The update that a run has computed and given to no sum yet; `position` is its reserve in the chain. Computed from patients
# and not noised: like local states, it never leaves as it is.
prepared = Table(
    "prepared",
    site_metadata,
    Column("run", Text, primary_key=True),
    Column("round", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("model_digest", String(64), nullable=False),
    Column("position", BigInteger),  # None: a run without a charge
    Column("head", String(64)),
    Column("digest", String(64), nullable=False),
    Column("state", LargeBinary, nullable=False),
)

# What the coordinator signed for each round, as it came.
transcripts = Table(
    "transcripts",
    site_metadata,
    Column("run", Text, primary_key=True),
    Column("round", BigInteger, primary_key=True, autoincrement=False),
    Column("entry", LargeBinary, nullable=False),
)
