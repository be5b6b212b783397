"""What a database or a disk says, as one `StoreError` that says what to do."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from consilia.core.errors import StoreError

BUSY_SECONDS = 10.0
# What reading values raises that nobody wrote: bytes that are no text, JSON that is none, nested too deep, or of another
# kind. Damage turns up wherever a value is first used, and the driver meets it as often as this package does.
DAMAGE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)

_Words = tuple[str, str]  # what is needed, what to do
_TURN = (f"its turn to write within {BUSY_SECONDS:g} seconds", "Wait for the other run or end it, then resume")
_ROOM = ("room on the disk", "Free some space, then resume; nothing was half written")
_ANSWER = (
    "a PostgreSQL server that answers",
    "Check that it runs and that the URL names it, then resume: every round is safe",
)
_LOGIN = (
    "a user and password that the server accepts",
    "Check the URL or the password file (PGPASSFILE)",
)
_GRANT = (
    "a user who may create and write its tables",
    "Grant it CREATE and USAGE on the schema, or make it the owner",
)
# By SQLSTATE, the longest prefix first. Source: PostgreSQL manual, appendix A.
_STATES: dict[str, _Words] = {
    "08": _ANSWER, "57P": _ANSWER, "53300": _ANSWER,
    "28": _LOGIN,
    "3D000": ("a database that exists", "Create it (createdb), or check the URL"),
    "25006": ("a server that may be written", "A standby only reads: name the primary in the URL"),
    "42501": _GRANT, "3F000": _GRANT,
    "53100": _ROOM,
    "53": ("memory and connections to spare on the server", "Look at the server's log, then resume"),
    "55P03": _TURN, "40": _TURN,
    "42P01": ("its own tables", "They were dropped or renamed: restore the database from a copy"),
    "42703": ("its own tables", "They were changed: restore the database from a copy"),
    "58": ("a server whose disk reads and writes", "Look at the server's log, then resume"),
    "XX": ("an undamaged database", "Restore it from a copy"),
}  # fmt: skip
# What a server refuses before there is a session carries no SQLSTATE, only words.
_REFUSALS: tuple[tuple[str, _Words], ...] = (
    ("password", _LOGIN), ("authentication failed", _LOGIN), ("pg_hba.conf", _LOGIN), ('role "', _LOGIN),
    ('database "', _STATES["3D000"]),
)  # fmt: skip


@contextmanager
def faults(who: str) -> Iterator[None]:
    """Turn what the database or the file system says into one `StoreError` that says what to do.

    Raises:
        StoreError: In place of any database or file-system error, and of what damaged values raise when read.
    """
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, OSError) as error:
        raise explained(who, error) from error
    except DAMAGE as error:
        raise damaged(who, error) from error


def damaged(who: str, error: BaseException) -> StoreError:
    """Return the error for a file that holds what Consilia did not write."""
    return StoreError.of(
        who, needs="the values that were written to it", got=f"others, which cannot be read ({type(error).__name__})",
        hint="It was changed or damaged on disk: restore it from a copy",
    )  # fmt: skip


def explained(who: str, error: BaseException) -> StoreError:
    """Return the one error for what a database or a file system said."""
    if isinstance(error, DBAPIError):
        error = error.orig or error
    if hasattr(error, "sqlstate"):
        return _of_postgres(who, error)
    name = getattr(error, "sqlite_errorname", "")
    got = f"{error}" or type(error).__name__
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return StoreError.of(
            who, needs="an undamaged Consilia database", got=got,
            hint="Restore it from a copy, and compare its head with the coordinator's before going on",
        )  # fmt: skip
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreError.of(who, needs=_TURN[0], got="another process that holds the file", hint=_TURN[1])
    if name.startswith("SQLITE_FULL") or getattr(error, "errno", None) == 28:
        return StoreError.of(who, needs=_ROOM[0], got=got, hint=_ROOM[1])
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")) or isinstance(error, OSError):
        return StoreError.of(
            who, needs="a folder and file that this user may read and write", got=got,
            hint="Check the path and its permissions, or set CONSILIA_HOME to another folder",
        )  # fmt: skip
    if name.startswith("SQLITE_IOERR"):
        return StoreError.of(who, needs="a disk that reads and writes", got=got, hint="Check the disk, then resume")
    return StoreError.of(who, needs="a database that works", got=got, hint="Resume; if it happens again, report it")


def _of_postgres(who: str, error: BaseException) -> StoreError:
    # The first line only: what follows may quote values of a row.
    said = (str(error) or type(error).__name__).splitlines()[0]
    needs, hint = _words(getattr(error, "sqlstate", None), said)
    return StoreError.of(who, needs=needs, got=said, hint=hint)


def _words(state: str | None, said: str) -> _Words:
    if state is None:
        refused = said.partition("FATAL:")[2]
        return next((words for part, words in _REFUSALS if part in refused or "no password supplied" in said), _ANSWER)
    for length in (5, 3, 2):
        if words := _STATES.get(state[:length]):
            return words
    return "a database that works", "Resume; if it happens again, report it"


def passing(error: DBAPIError) -> bool:
    """Say whether the same transaction may well succeed on a new connection: the server restarts, or took its turn back."""
    if not hasattr(error.orig, "sqlstate"):
        return False
    state: str | None = getattr(error.orig, "sqlstate", None)
    if state is None:
        return error.connection_invalidated or _words(None, str(error.orig)) is _ANSWER
    return error.connection_invalidated or state.startswith(("08", "57P", "40"))
