"""Bring an older store of the coordinator to the present tables, inside the caller's transaction.

Belongs here: what runs Alembic, and one file a version in `versions`. Does not: the present tables (`journal_tables`).
Imported only when a store is older than the code: Alembic takes longer to load than a run takes to begin.
"""

import threading
from pathlib import Path

from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.runtime.migration import RevisionStep
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from consilia.store.journal_tables import revision

_FOLDER = Path(__file__).parent
_one = threading.Lock()  # the scripts' `op` is one a process


def migrate(connection: Connection, version: int) -> None:
    """Bring the tables from `version` (0: none) to the newest.

    Raises:
        SQLAlchemyError: If a statement fails; the caller's transaction undoes those before it.
    """
    scripts = ScriptDirectory(_FOLDER, version_locations=[_FOLDER / "versions"])

    def steps(found: object, _context: MigrationContext) -> list[RevisionStep]:
        return scripts._upgrade_revs("head", found)  # type: ignore[arg-type]

    options = {"version_table": revision.name, "fn": steps}
    with _one:
        context = MigrationContext.configure(connection, opts=options)
        if version and not context.get_current_heads():
            # Files of version 1 were made before Alembic kept count.
            context.stamp(scripts, str(version))
        with Operations.context(context):
            context.run_migrations()
