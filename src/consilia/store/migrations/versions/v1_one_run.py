"""Version 1: one run a file."""

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None


def upgrade() -> None:
    """Make the tables of a file that holds one run."""
    op.create_table(
        "consilia_store",
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
    )
    op.create_table(
        "run",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("round", sa.BigInteger, nullable=False),
        sa.Column("result", sa.Text),
    )
    op.create_table(
        "state",
        sa.Column("run", sa.Text, sa.ForeignKey("run.run"), primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("state", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "records",
        sa.Column("round", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("record", sa.Text, nullable=False),
        sa.Column("charges", sa.Text, nullable=False),
    )
