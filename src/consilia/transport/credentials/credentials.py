"""A member's folder: its own keys, and what the consortium said last."""

import shlex
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from consilia.core.errors import Problem, StoreError
from consilia.crypto.keys import KEY_SIZE
from consilia.secagg.roster import Identity
from consilia.transport.credentials import book as books
from consilia.transport.credentials import certificates, files, keyfiles, standing
from consilia.transport.credentials.book import Book, Entry
from consilia.transport.credentials.names import Role
from consilia.transport.credentials.reading import shown
from consilia.transport.credentials.seen import remember

IDENTITY, TLS, TLS_NEXT, PINNED = "identity.key", "tls.key", "tls.next.key", "consortium.pub"
WARN = timedelta(days=30)


@dataclass(frozen=True)
class Credentials:
    """What a member shows and what it believes.

    Attributes:
        folder: Where it all lies.
        role: What the member is.
        identity: Its own keys for the protocol's messages; their text never shows them.
        tls_key: Its private key for TLS, PEM; likewise.
        entry: Its own line of the roster.
        book: The roster.
        consortium: The consortium's public Ed25519 key, as pinned in the folder.
    """

    folder: Path
    role: Role
    identity: Identity
    tls_key: bytes = field(repr=False)
    entry: Entry
    book: Book
    consortium: bytes = field(repr=False)

    @classmethod
    def load(cls, folder: Path, now: datetime | None = None) -> "Credentials":
        """Read a member's folder.

        Args:
            folder: Made by `consilia roster add`.
            now: The time; the clock's when absent.

        Raises:
            StoreError: If keys are missing, damaged or readable by others, the roster is not the consortium's or is older
                than one seen here, or the member's own certificate is missing, revoked, expired, not yet valid or another key's.
        """
        now = datetime.now(UTC) if now is None else now
        identity, role = keyfiles.read_identity(folder / IDENTITY)
        consortium = read_pin(folder)
        book = Book.read(folder / books.FILE, consortium)
        remember(folder, book)
        entry = own_entry(book, identity, role, folder)
        key = tls_key(folder, entry)
        who = f"the certificate of {role} {identity.name}"
        problems = list(standing.date_faults(entry.certificate, who, now))
        if problems:
            raise StoreError(problems)
        return cls(folder, role, identity, certificates.key_pem(key), entry, book, consortium)

    @property
    def name(self) -> str:
        """The member's name."""
        return self.identity.name

    @property
    def chain(self) -> bytes:
        """The member's certificate for TLS, PEM; the authority that issued it is what the other end trusts."""
        return certificates.pem(self.entry.certificate)

    @property
    def ca(self) -> bytes:
        """The authority's certificate, PEM."""
        return self.book.ca_pem

    @property
    def trusted(self) -> bytes:
        """What TLS at this end is told to trust, PEM.

        At the coordinator: the authority; `Book.authenticate` then says who counts. At those who dial: the coordinator's
        certificate of the roster and no other, so that one superseded, revoked or issued with a stolen ca.key is refused.
        The TLS library must take a certificate that is not an authority's as an anchor (gRPC does; OpenSSL: X509_PARTIAL_CHAIN).
        """
        return self.ca if self.role == "coordinator" else certificates.pem(self.book.coordinator.certificate)

    def refreshed(self, now: datetime | None = None) -> "Credentials":
        """Return these credentials if the folder's roster is the one they hold, else those that the folder holds now.

        Raises:
            StoreError: As `load`; these credentials then stay good.
        """
        raw = files.read_public(self.folder / books.FILE, books.MOST_BYTES)
        return self if raw == self.book.to_bytes() else Credentials.load(self.folder, now)

    def warnings(self, now: datetime | None = None) -> list[str]:
        """Return what will stop working within 30 days: the member's own certificate, and at the coordinator everybody's."""
        now = datetime.now(UTC) if now is None else now
        found = []
        for one in self.book.members if self.role == "coordinator" else (self.entry,):
            left = one.until - now
            if left < WARN:
                where = f" --dir {shlex.quote(str(self.folder))}" if one == self.entry else " at that member"
                ends = f"expires in {_span(left)}" if left > timedelta(0) else "has expired"
                found.append(
                    f"the certificate of {one.name} {ends}: consilia roster renew {shlex.quote(one.name)}{where}"
                )
        return found


def _span(left: timedelta) -> str:
    if left.days < 1:
        return "less than a day"
    return "1 day" if left.days == 1 else f"{left.days} days"


def read_pin(folder: Path) -> bytes:
    """Return the consortium's public key as a member's folder has it.

    Raises:
        StoreError: If there is none, or others can change it.
    """
    path = folder / PINNED
    if not path.exists():
        raise StoreError.of(f"folder {folder}", needs="the roster that the consortium signed", got="none yet", hint=(
            f"Send {folder.name}.request.json to the consortium's officer; with the roster.json that comes back run: "
            f"consilia roster add {folder.name} --roster roster.json"
        ))  # fmt: skip
    raw = files.read_trusted(path, 1000).strip()
    try:
        pinned = bytes.fromhex(raw.decode("ascii"))
    except ValueError:
        pinned = b""
    if len(pinned) != KEY_SIZE:
        raise StoreError.of(f"file {path}", needs=f"{2 * KEY_SIZE} hexadecimal digits", got="something else",
                            hint="Restore it from a copy")  # fmt: skip
    return pinned


def own_entry(book: Book, identity: Identity, role: Role, folder: Path) -> Entry:
    """Return a member's own line of the roster.

    Raises:
        StoreError: If it is not on it, was revoked, or is there with other keys.
    """
    entry = book.by_name.get(identity.name)
    mine = (identity.name, role, identity.signing.public, identity.sealing.public)
    if entry is not None and (entry.name, entry.role, entry.verifying, entry.sealing) == mine:
        return entry
    who = f"{role} {identity.name}"
    for gone in book.revoked:
        if gone.verifying == identity.signing.public:
            raise StoreError.of(who, needs="a place on the roster", got=f"one revoked on {shown(gone.when)}: {gone.reason}",
                                hint="To come back it needs fresh keys: consilia roster add, in a new folder")  # fmt: skip
    got = "none" if entry is None else "another member of that name: other keys or another role"
    raise StoreError.of(who, needs=f"a place on version {book.version} of the roster of {book.consortium}", got=got,
                        hint=f"Send {folder.name}.request.json to the consortium's officer")  # fmt: skip


def tls_key(folder: Path, entry: Entry) -> ec.EllipticCurvePrivateKey:
    """Return the private key of a member's certificate: the old one's, or the one that a renewal made.

    Raises:
        StoreError: If neither fits.
    """
    for name in (TLS, TLS_NEXT):
        path = folder / name
        if name == TLS_NEXT and not path.exists():
            break
        key = certificates.read_key(files.read_secret(path), f"key {path}")
        if certificates.same_key(key.public_key(), entry.certificate.public_key()):
            return key
    problem = Problem(f"key {folder / TLS}", f"to be the key of the certificate in the roster of {entry.name}", "another",
                      f"Restore it from a copy, or run: consilia roster renew {entry.name}")  # fmt: skip
    raise StoreError([problem])
