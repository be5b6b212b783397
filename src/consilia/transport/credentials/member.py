"""What a member does in its own folder: make keys, ask for a certificate, take a roster."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from consilia.core.errors import PlanError
from consilia.core.randomness import SecretRng
from consilia.secagg.roster import Identity
from consilia.transport.credentials import book as books
from consilia.transport.credentials import certificates, files, keyfiles, names, standing
from consilia.transport.credentials.book import Book
from consilia.transport.credentials.credentials import (
    IDENTITY,
    PINNED,
    TLS,
    TLS_NEXT,
    Credentials,
    own_entry,
    read_pin,
    tls_key,
)
from consilia.transport.credentials.names import Role
from consilia.transport.credentials.request import Request
from consilia.transport.credentials.seen import remember, require_newest


@dataclass(frozen=True)
class Asked:
    """A request and the file it was written to."""

    request: Request
    path: Path


def join(folder: Path, name: str, role: Role, rng: SecretRng) -> Asked:
    """Make a member's folder: fresh keys, readable by its owner alone, and the request to send.

    Raises:
        PlanError: If the name is none, or the folder holds something.
        StoreError: If it cannot be written.
    """
    problem = names.name_problem(name, "the member's name")
    if problem is not None:
        raise PlanError([problem])
    identity, key = Identity.draw(name, rng), certificates.new_key()
    request = Request.made(identity, role, key, None)
    files.make_folder(folder, {
        IDENTITY: (keyfiles.identity_bytes(identity, role), files.SECRET),
        TLS: (certificates.key_pem(key), files.SECRET),
        _request(name): (request.to_bytes(), files.PUBLIC),
    })  # fmt: skip
    return Asked(request, folder / _request(name))


def _request(name: str) -> str:
    return f"{name}.request.json"


def _renewal(name: str) -> str:
    return f"{name}.renewal.json"


def first_request(folder: Path) -> Asked:
    """Return the request that `join` wrote.

    Raises:
        StoreError: If the folder is no member's, or the file was damaged.
    """
    identity, _ = keyfiles.read_identity(folder / IDENTITY)
    path = folder / _request(identity.name)
    return Asked(Request.read(path), path)


def renew(folder: Path, name: str) -> Asked:
    """Make a fresh TLS key and the request to certify it; the old pair goes on working until the new roster is there.

    A renewal that is under way is taken up again: the same key, the same request.

    Raises:
        PlanError: If the folder is another member's.
        StoreError: If the folder is no member's, or cannot be written.
    """
    identity, role = _own(folder, name)
    book = Book.read(folder / books.FILE, read_pin(folder))
    remember(folder, book)
    entry = own_entry(book, identity, role, folder)
    _settle(folder, book, identity, role)
    path, fresh = folder / _renewal(name), folder / TLS_NEXT
    if not fresh.exists():
        files.create(fresh, certificates.key_pem(certificates.new_key()), files.SECRET)
    key = certificates.read_key(files.read_secret(fresh), f"key {fresh}")
    serial = standing.serial_of(entry.certificate)
    if path.exists():
        request = Request.read(path)
        if request.renews == serial and certificates.same_key(request.tls, key.public_key()):
            return Asked(request, path)
    request = Request.made(identity, role, key, serial)
    files.replace(path, request.to_bytes())
    return Asked(request, path)


def install(folder: Path, name: str, source: Path, now: datetime, believes: Callable[[Book], bool]) -> Credentials:
    """Take a roster into a member's folder; an older one than it has is refused.

    Args:
        folder: The member's.
        name: Its name.
        source: The roster's file.
        now: The time.
        believes: Asked at the first roster, when no consortium's key is pinned yet: whether this is the right consortium.

    Raises:
        PlanError: If the folder is another member's, or the consortium was not believed.
        StoreError: If the roster is not the consortium's, is older, or has no place for the member.
    """
    identity, role = _own(folder, name)
    pinned = read_pin(folder) if (folder / PINNED).exists() else None
    start = "the consortium's officer sends it: consilia roster sign writes it in the consortium's folder"
    raw = files.read_public(source, books.MOST_BYTES, start)
    book = Book.read(raw, pinned)
    own_entry(book, identity, role, folder)
    tls_key(folder, book.by_name[name])
    if pinned is None:
        if not believes(book):
            raise PlanError.of("the consortium", needs="the fingerprint that its officer reads out", got="no confirmation",
                               hint="Nothing was changed. Ask the officer by telephone, on a number you know")  # fmt: skip
        files.create(folder / PINNED, book.public.hex().encode() + b"\n")
    require_newest(folder, book)
    if not (folder / books.FILE).exists() or not os.path.samefile(source, folder / books.FILE):
        files.replace(folder / books.FILE, raw)
    remember(folder, book)
    _settle(folder, book, identity, role)
    return Credentials.load(folder, now)


def _own(folder: Path, name: str) -> tuple[Identity, Role]:
    identity, role = keyfiles.read_identity(folder / IDENTITY)
    if identity.name != name:
        raise PlanError.of(f"folder {folder}", needs=f"to be that of {name}", got=f"that of {role} {identity.name}",
                           hint="Name its member, or another folder with --dir")  # fmt: skip
    return identity, role


def _settle(folder: Path, book: Book, identity: Identity, role: Role) -> None:
    """Put a renewed key in the old one's place once the roster has its certificate."""
    fresh = folder / TLS_NEXT
    if not fresh.exists():
        return
    key = certificates.read_key(files.read_secret(fresh), f"key {fresh}")
    if certificates.same_key(key.public_key(), own_entry(book, identity, role, folder).certificate.public_key()):
        files.move(fresh, folder / TLS)
        files.remove(folder / _renewal(identity.name))
