"""Version 2: records by run, a count of the processes that took a run up, a state in parts, a queue: one store holds many."""

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"


def upgrade() -> None:
    """Key the records by run, which is the one that the file held, and add what was not there."""
    op.add_column("run", sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0"))
    op.create_table(
        "records_by_run",
        sa.Column("run", sa.Text, sa.ForeignKey("run.run"), primary_key=True),
        sa.Column("round", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("record", sa.Text, nullable=False),
        sa.Column("charges", sa.Text, nullable=False),
    )
    op.execute(
        "INSERT INTO records_by_run SELECT run.run, r.round, r.record, r.charges FROM records AS r CROSS JOIN run"
    )
    op.drop_table("records")
    op.rename_table("records_by_run", "records")
    op.create_table(
        "state_in_parts",
        sa.Column("run", sa.Text, sa.ForeignKey("run.run"), primary_key=True),
        sa.Column("part", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("state", sa.LargeBinary, nullable=False),
    )
    op.execute("INSERT INTO state_in_parts SELECT run, 0, digest, state FROM state")
    op.drop_table("state")
    op.rename_table("state_in_parts", "state")
    op.create_table(
        "queue",
        sa.Column("position", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("run", sa.Text, nullable=False, unique=True),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("submitter", sa.Text, nullable=False),
        sa.Column("submitted", sa.String(32), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("stop", sa.Boolean, nullable=False),
        sa.Column("round", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.String(64)),
        sa.Column("until", sa.Float(53)),
        sa.Column("held_from", sa.BigInteger, nullable=False),
        sa.Column("lost", sa.Integer, nullable=False),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE state ALTER COLUMN state SET STORAGE EXTERNAL")
