"""What a database is, read before anything is written to it."""

from sqlalchemy import Connection, Table, inspect, select

from consilia.core.errors import StoreError

SHARED = ""  # the name in the header of a store of many runs


def recognise(
    connection: Connection, who: str, *, header: Table, kind: str, versions: tuple[int, int], names: tuple[str, ...],
    create: bool,
) -> tuple[int, str] | None:  # fmt: skip
    """Return version and name of one of ours, None for an empty database that may be filled; refuse any other.

    Args:
        connection: Reads it.
        who: How errors name it.
        header: The table that says what it is.
        kind: The kind wanted, "site" or "journal".
        versions: The oldest and the newest version that will do.
        names: Whose it may be, the one wanted first; none for any.
        create: Whether an empty one may be filled.

    Raises:
        StoreError: If it is another program's, of another kind, version or owner, or empty with nothing to fill it.
    """
    tables = inspect(connection).get_table_names()
    if not tables:
        if not create:
            raise StoreError.of(
                who, needs=f"a Consilia {kind} file", got="an empty file",
                hint="Its process was killed before it began: start a new run",
            )  # fmt: skip
        return None
    if header.name not in tables:
        raise StoreError.of(
            who, needs=f"a Consilia {kind} file", got="a database of another program",
            hint="Name another file; this one was left as it is",
        )  # fmt: skip
    row = connection.execute(select(header)).one_or_none()
    if row is None or row.kind != kind:
        raise StoreError.of(
            who, needs=f"a Consilia {kind} file", got=f"a file of kind {row.kind if row else 'unknown'!s}",
            hint="Name another file",
        )  # fmt: skip
    if not versions[0] <= row.version <= versions[1]:
        raise StoreError.of(
            who, needs=f"tables of version {versions[1]}", got=f"version {row.version}",
            hint="Open it with the Consilia release that wrote it",
        )  # fmt: skip
    if names and row.name not in names:
        raise StoreError.of(
            who, needs=_owner(names[0]), got=_owner(row.name), hint="Each site and each run has a file of its own",
        )  # fmt: skip
    return int(row.version), str(row.name)


def _owner(name: str) -> str:
    return f"the file of {name!r}" if name != SHARED else "a store of many runs"
