"""A roster only grows: each folder remembers the newest version that it was shown."""

from pathlib import Path
from typing import TYPE_CHECKING

from consilia.core.canonical import canonical_bytes
from consilia.core.errors import StoreError
from consilia.transport.credentials import files
from consilia.transport.credentials.reading import Reader, hexadecimal, whole

if TYPE_CHECKING:
    from consilia.transport.credentials.book import Book

FILE = "roster.seen"
_FIELDS = {"version": whole(1, 10**9), "digest": hexadecimal(32)}


def require_newest(folder: Path, book: "Book") -> bool:
    """Check that a roster is no older than any seen in this folder.

    Returns:
        True if it is the one that was seen last, False if it is newer.

    Guarantees:
        Whoever brings an old roster back, in which a revoked member still counts, is found out as long as this folder is whole;
        so is an officer who signs two rosters of one version.

    Raises:
        StoreError: If it is older, or another one of the same version.
    """
    path = folder / FILE
    if not path.exists():
        return False
    reader = Reader(f"file {path}")
    found = reader.table(reader.document(files.read_trusted(path, 1000)), _FIELDS)
    reader.check()
    if found is None:
        raise TypeError("a table without faults has fields")
    who, seen = f"roster version {book.version} in {folder}", found["version"]
    if book.version < seen:
        raise StoreError.of(who, needs=f"to be version {seen} or newer, which was seen here", got="an older one",
                            hint="Ask for the newest roster.json: in an old one revoked members still count")  # fmt: skip
    if book.version == seen and bytes.fromhex(book.digest) != found["digest"]:
        raise StoreError.of(who, needs="to be the one that was seen here under that number", got="another",
                            hint="Ask the officer: two rosters were signed with one number")  # fmt: skip
    return bool(book.version == seen)


def remember(folder: Path, book: "Book") -> None:
    """Check as `require_newest`, then remember the roster; call it once the roster lies in the folder.

    Raises:
        StoreError: As there, and if the folder cannot be written.
    """
    if not require_newest(folder, book):
        files.replace(folder / FILE, canonical_bytes({"version": book.version, "digest": book.digest}) + b"\n")
