"""The consortium's book of its members: who they are, in which role, with which keys and certificate, and who was revoked."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path

from cryptography import x509

from consilia.core.canonical import Json, canonical_bytes, digest_bytes
from consilia.core.errors import StoreError
from consilia.crypto.signing import SigningKey
from consilia.secagg.roster import Member, Roster
from consilia.transport.credentials import certificates, files, standing
from consilia.transport.credentials.book_check import checked
from consilia.transport.credentials.names import CLIENTS, Role, dns
from consilia.transport.credentials.reading import encode, stamp

PURPOSE = b"consilia book 1\n"
MOST_BYTES = 1 << 22
FILE = "roster.json"


@dataclass(frozen=True)
class Entry:
    """A member.

    Attributes:
        name: As plans name it.
        role: What it is.
        verifying: Its public Ed25519 key, 32 bytes: what it signs is checked with it.
        sealing: Its public X25519 key, 32 bytes.
        der: Its current certificate for TLS; no other one counts.
    """

    name: str
    role: Role
    verifying: bytes = field(repr=False)
    sealing: bytes = field(repr=False)
    der: bytes = field(repr=False)

    @cached_property
    def certificate(self) -> x509.Certificate:
        """Its current certificate."""
        return x509.load_der_x509_certificate(self.der)

    @property
    def dns(self) -> str:
        """The DNS name that its certificate carries."""
        return dns(self.name)

    @property
    def tls(self) -> object:
        """The public key of its certificate."""
        return self.certificate.public_key()

    @property
    def until(self) -> datetime:
        """When its certificate ends."""
        return self.certificate.not_valid_after_utc


@dataclass(frozen=True)
class Revoked:
    """A member that was thrown out; its keys never count again.

    Attributes:
        name: What it was called.
        role: What it was.
        verifying: Its public Ed25519 key.
        sealing: Its public X25519 key.
        serial: Of its last certificate, in hex.
        when: The moment.
        reason: Why, as the consortium's officer said.
    """

    name: str
    role: Role
    verifying: bytes = field(repr=False)
    sealing: bytes = field(repr=False)
    serial: str
    when: datetime
    reason: str


@dataclass(frozen=True)
class Book:
    """One version of the roster.

    Attributes:
        consortium: Its name.
        public: Its public Ed25519 key, 32 bytes.
        version: From 1; each change is one more.
        issued: When this version was signed.
        authority: Certificate of who issues certificates, DER.
        members: By ascending name.
        revoked: In the order it happened.
        sites_signature: Over the sites' keys alone: what secure sums verify.
        signature: Over all the above.
    """

    consortium: str
    public: bytes = field(repr=False)
    version: int
    issued: datetime
    authority: bytes = field(repr=False)
    members: tuple[Entry, ...]
    revoked: tuple[Revoked, ...]
    sites_signature: bytes = field(repr=False)
    signature: bytes = field(repr=False)

    @classmethod
    def signed(
        cls, key: SigningKey, *, consortium: str, version: int, issued: datetime, authority: bytes,
        members: Iterable[Entry], revoked: Iterable[Revoked],
    ) -> "Book":  # fmt: skip
        """Return a version of the roster under the consortium's signatures."""
        ordered = tuple(sorted(members, key=lambda member: member.name))
        sites = Roster.signed(_sites(ordered), key).signature
        unsigned = cls(consortium, key.public, version, issued, authority, ordered, tuple(revoked), sites, b"")
        return cls(consortium, key.public, version, issued, authority, ordered, tuple(revoked), sites,
                   key.sign(PURPOSE + canonical_bytes(unsigned._body())))  # fmt: skip

    @classmethod
    def read(cls, source: Path | bytes, consortium: bytes | None) -> "Book":
        """Read a roster and check it.

        Args:
            source: A file, or what it holds.
            consortium: The consortium's public Ed25519 key, from the reader's own folder. None: the key that the roster names
                itself; then a person must compare its fingerprint before the roster is used.

        Raises:
            StoreError: With every fault, if it is not what that key signed.
        """
        raw = source if isinstance(source, bytes) else files.read_public(source, MOST_BYTES)
        who = "the roster" if isinstance(source, bytes) else f"roster {source}"
        if len(raw) > MOST_BYTES:
            raise StoreError.of(
                who, needs=f"at most {MOST_BYTES} bytes", got="more", hint="Check that it is the right file"
            )
        found = checked(raw, who, consortium, PURPOSE)
        members, revoked = (
            tuple(Entry(**one) for one in found.pop("members")), tuple(Revoked(**one) for one in found.pop("revoked")),
        )  # fmt: skip
        book = cls(**found, members=members, revoked=revoked)
        standing.require_consistent(book, who)
        return book

    def to_bytes(self) -> bytes:
        """Return what `read` reads: canonical JSON and a newline."""
        return canonical_bytes({**self._body(), "signature": self.signature.hex()}) + b"\n"

    def _body(self) -> dict[str, Json]:
        return {
            "format": "consilia book 1", "consortium": self.consortium, "public": self.public.hex(), "version": self.version,
            "issued": stamp(self.issued), "authority": encode(self.authority),
            "members": [
                {"name": one.name, "role": one.role, "verifying": one.verifying.hex(), "sealing": one.sealing.hex(),
                 "der": encode(one.der)} for one in self.members
            ],
            "revoked": [
                {"name": one.name, "role": one.role, "verifying": one.verifying.hex(), "sealing": one.sealing.hex(),
                 "serial": one.serial, "when": stamp(one.when), "reason": one.reason} for one in self.revoked
            ],
            "sites_signature": self.sites_signature.hex(),
        }  # fmt: skip

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the file, in hex."""
        return digest_bytes(self.to_bytes())

    @cached_property
    def ca(self) -> x509.Certificate:
        """The authority's certificate."""
        return x509.load_der_x509_certificate(self.authority)

    @property
    def ca_pem(self) -> bytes:
        """The authority's certificate, as TLS libraries take it."""
        return certificates.pem(self.ca)

    @cached_property
    def by_name(self) -> dict[str, Entry]:
        """The members by their names."""
        return {member.name: member for member in self.members}

    @cached_property
    def sites(self) -> Roster:
        """The sites' keys under a signature of their own: what secure sums take."""
        return Roster(_sites(self.members), self.sites_signature)

    @property
    def coordinator(self) -> Entry:
        """The one coordinator.

        Raises:
            StoreError: If the roster has none.
        """
        found = [member for member in self.members if member.role == "coordinator"]
        if not found:
            raise StoreError.of(f"roster version {self.version} of {self.consortium}", needs="a coordinator", got="none",
                                hint="There: consilia roster add NAME --role coordinator; then have it signed")  # fmt: skip
        return found[0]

    def authenticate(self, certificate: bytes | None, now: datetime, roles: Collection[Role] = CLIENTS) -> Entry:
        """Return whose certificate it is.

        Args:
            certificate: In DER or PEM, as the other end showed it; that it holds the private key is what TLS made sure of.
            now: The time, with its zone.
            roles: Who may be at the other end: at the coordinator those who dial, at those who dial `names.SERVERS`.

        Raises:
            TransportError: With every reason why it does not count: none, another consortium's, wrong purpose, expired, not yet
                valid, off the roster, superseded by a renewal, revoked.
        """
        return standing.authenticated(self, certificate, now, roles)


def _sites(members: Iterable[Entry]) -> tuple[Member, ...]:
    return tuple(Member(one.name, one.verifying, one.sealing) for one in members if one.role == "site")
