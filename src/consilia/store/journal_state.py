"""A run's state in the journal's tables: in parts, so that writing a large one takes no memory beside it."""

import hashlib
from collections.abc import Iterator, Sequence

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from consilia.core.update import Bytes
from consilia.store.journal_tables import journal_state

_PART = 1 << 20  # bytes of a row: what the database's driver copies at a time

_mine = journal_state.c.run == bindparam("b_run")
_count = select(func.count()).select_from(journal_state).where(_mine)
_put = insert(journal_state)
# In place: faster than delete and insert, and a file stays flat.
_replace = update(journal_state).where(_mine, journal_state.c.part == bindparam("b_part"))
_rest = delete(journal_state).where(_mine, journal_state.c.part >= bindparam("b_part"))


def write_state(connection: Connection, run: str, state: Sequence[Bytes]) -> None:
    """Write a run's state in place of the one before.

    Args:
        connection: Within the transaction of the round.
        run: Its name.
        state: Its bytes, in pieces of any length.
    """
    whole = hashlib.sha256()
    for piece in state:
        whole.update(piece)
    digest, number = whole.hexdigest(), 0
    before = connection.execute(_count, {"b_run": run}).scalar_one()
    for number, part in enumerate(_parts(state)):
        values = {"digest": digest, "state": part}
        if number < before:
            connection.execute(_replace, {"b_run": run, "b_part": number, **values})
        else:
            connection.execute(_put, {"run": run, "part": number, **values})
    if number + 1 < before:
        connection.execute(_rest, {"b_run": run, "b_part": number + 1})


def _parts(state: Sequence[Bytes]) -> Iterator[bytes]:
    """Yield the same bytes in parts of one length, the last one excepted; one empty part of none."""
    part, room, yielded = list[Bytes](), _PART, False
    for piece in state:
        rest = memoryview(piece)
        while rest:
            part.append(rest[:room])
            room -= len(part[-1])
            rest = rest[len(part[-1]) :]
            if not room:
                yield b"".join(part)
                part, room, yielded = [], _PART, True
    if part or not yielded:
        yield b"".join(part)
