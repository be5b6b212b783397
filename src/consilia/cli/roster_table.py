"""What `consilia roster show` prints."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilia.cli import output

if TYPE_CHECKING:
    from consilia.transport.credentials.book import Book
    from consilia.transport.credentials.member import Asked


def waiting(place: Path) -> "Asked | None":
    """Return the request of a member's folder that no roster has come back to, or None for any other place."""
    from consilia.transport.credentials.book import FILE
    from consilia.transport.credentials.credentials import IDENTITY
    from consilia.transport.credentials.member import first_request

    if not (place / IDENTITY).exists() or (place / FILE).exists():
        return None
    return first_request(place)


def document(place: Path, now: datetime) -> dict[str, Any]:
    """Return what a roster says, with what each member's certificate has left.

    Raises:
        StoreError: If it is no roster, or not the one of the consortium that the folder trusts.
    """
    from consilia.transport.credentials.reading import stamp
    from consilia.transport.credentials.request import consortium_fingerprint

    book, trusted = _book(place)
    members = [
        {"name": one.name, "role": one.role, "until": stamp(one.until), "days": (one.until - now) // timedelta(days=1)}
        for one in book.members
    ]
    revoked = [
        {"name": one.name, "role": one.role, "when": stamp(one.when), "reason": one.reason} for one in book.revoked
    ]
    return {"consortium": book.consortium, "version": book.version, "issued": stamp(book.issued), "trusted": trusted,
            "fingerprint": consortium_fingerprint(book.public), "members": members, "revoked": revoked}  # fmt: skip


def _book(place: Path) -> "tuple[Book, bool]":
    """Return the roster and whether it was held against a key that the folder has."""
    from consilia.transport.credentials import keyfiles
    from consilia.transport.credentials.book import FILE, Book
    from consilia.transport.credentials.credentials import PINNED, read_pin
    from consilia.transport.credentials.office import KEY
    from consilia.transport.credentials.seen import remember

    if not place.is_dir():
        return Book.read(place, None), False
    if (place / KEY).exists():
        key = keyfiles.read_consortium(place / KEY).public
    elif (place / PINNED).exists():
        key = read_pin(place)
    else:
        return Book.read(place / FILE, None), False
    book = Book.read(place / FILE, key)
    remember(place, book)
    return book, True


def print_table(found: dict[str, Any]) -> None:
    """Print it as a table; what expires within 30 days is marked."""
    from rich.table import Table
    from rich.text import Text

    from consilia.transport.credentials.credentials import WARN

    terminal = output.console()
    terminal.print(
        Text.assemble((found["consortium"], "bold"), f", roster version {found['version']} of {found['issued']}")
    )
    terminal.print(Text(f"fingerprint {found['fingerprint']}", style="dim"), soft_wrap=True)
    if not found["trusted"]:
        terminal.print("held against no pinned key: compare the fingerprint with the officer's")
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for title in ("member", "role", "certificate until"):
        table.add_column(title, overflow="fold")
    for one in found["members"]:
        left = one["days"]
        note = "" if left >= WARN.days else f"  {left} days left" if left >= 0 else "  expired"
        table.add_row(one["name"], one["role"], Text.assemble(one["until"][:10], (note, "bold red")))
    if found["members"]:
        terminal.print(table)
    for one in found["revoked"]:
        terminal.print(
            Text(f"revoked {one['when'][:10]}  {one['role']} {one['name']}: {one['reason']}"), soft_wrap=True
        )
    if any(one["days"] < WARN.days for one in found["members"]):
        output.say("At a member whose certificate ends: consilia roster renew NAME", style="yellow")
