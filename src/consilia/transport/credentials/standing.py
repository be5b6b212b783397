"""Whether a certificate counts: by purpose, by date, and by what the roster says about its owner."""

from collections import Counter
from collections.abc import Collection, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from cryptography import x509

from consilia.core.errors import Problem, ProtocolError, StoreError, TransportError
from consilia.transport.credentials import certificates
from consilia.transport.credentials.names import ROLES, Role, dns, uri
from consilia.transport.credentials.reading import shown

if TYPE_CHECKING:
    from consilia.transport.credentials.book import Book, Entry

_DOES = {
    "site": "a site, which dials",
    "operator": "an operator, who dials",
    "coordinator": "the coordinator, which is dialled",
}


def authenticated(book: "Book", shown_bytes: bytes | None, now: datetime, roles: Collection[Role]) -> "Entry":
    """Return whose certificate it is; see `Book.authenticate`."""
    other = "the other end"
    if not shown_bytes:
        raise TransportError.of(other, needs=f"a certificate of consortium {book.consortium}", got="none",
                                hint="Start it with the folder that consilia roster add made")  # fmt: skip
    certificate = certificates.read_certificate(shown_bytes)
    if certificate is None:
        raise TransportError.of(other, needs=f"a certificate of consortium {book.consortium}", got="bytes that are none",
                                hint="Start it with the folder that consilia roster add made")  # fmt: skip
    if not certificates.issued_by(certificate, book.ca):
        raise TransportError.of(other, needs=f"a certificate of consortium {book.consortium}", got="one of another authority",
                                hint="Check that both ends belong to the same consortium")  # fmt: skip
    raw = certificates.der(certificate)  # exact: an ECDSA signature has a second spelling that anybody can make
    entry = next((one for one in book.members if one.der == raw), None)
    problems = list(_faults(book, certificate, entry, now, roles))
    if problems or entry is None:
        raise TransportError(problems)
    return entry


def _faults(
    book: "Book", certificate: x509.Certificate, entry: "Entry | None", now: datetime, roles: Collection[Role]
) -> Iterator[Problem]:
    name, role = owner(certificate)
    who = f"the certificate of {role} {name}" if role else "the other end's certificate"
    if role is None or role not in roles or not certificates.is_for(certificate, name, role):
        allowed = " or ".join(_DOES[one] for one in roles)
        yield Problem(who, f"to be for {allowed}", f"the wrong purpose: {_DOES[role] if role else 'none of these'}",
                      "Give each process the folder of its own role")  # fmt: skip
    yield from date_faults(certificate, who, now)
    if entry is None:
        yield _standing(book, certificate, name, who)


def owner(certificate: x509.Certificate) -> tuple[str, Role | None]:
    """Return the name and role that a certificate speaks of; no role where it is not written as the authority writes."""
    try:
        names = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    except certificates.UNREADABLE:
        names = []
    name = str(names[0].value) if len(names) == 1 else ""
    claimed = certificates.claims(certificate)
    return name, next((role for role in ROLES if claimed == uri(role, name)), None)


def date_faults(certificate: x509.Certificate, who: str, now: datetime) -> Iterator[Problem]:
    """Yield what is wrong with a certificate's dates."""
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > ends:
        yield Problem(who, "to be valid today", f"an expired one: it ended on {shown(ends)}",
                      "At that member: consilia roster renew; then have the request signed")  # fmt: skip
    if now < begins:
        yield Problem(who, "to be valid today", f"one not yet valid: it begins on {shown(begins)}, here it is {shown(now)}",
                      "Check the clocks of both machines")  # fmt: skip


def _standing(book: "Book", certificate: x509.Certificate, name: str, who: str) -> Problem:
    version = f"version {book.version} of the roster"
    serial = serial_of(certificate)
    current = book.by_name.get(name)
    gone = [one for one in book.revoked if one.serial == serial]
    if current is None:
        gone = gone or [one for one in book.revoked if one.name == name]
    if gone:
        return Problem(who, "a member in good standing", f"one revoked on {shown(gone[-1].when)}: {gone[-1].reason}",
                       "To come back it needs fresh keys: consilia roster add, in a new folder")  # fmt: skip
    if current is None:
        return Problem(who, f"a member on {version}", "one that is off the roster",
                       "Give this end the newest roster.json, or have the member signed")  # fmt: skip
    if certificate.not_valid_before_utc > current.certificate.not_valid_before_utc:
        return Problem(who, f"the certificate in {version}", "a newer one",
                       "Give this end the newest roster.json")  # fmt: skip
    return Problem(who, f"the certificate in {version}", "a superseded one: it was renewed since",
                   "Give that member the newest roster.json")  # fmt: skip


def serial_of(certificate: x509.Certificate) -> str:
    """Return a certificate's serial number in hex."""
    return f"{certificate.serial_number:x}"


def require_consistent(book: "Book", who: str) -> None:
    """Check that a signed roster makes sense: what only the consortium's own officer, or its stolen key, can get wrong.

    Raises:
        StoreError: With every fault.
    """
    problems = list(_inconsistencies(book, who))
    if problems:
        raise StoreError(problems)


def _inconsistencies(book: "Book", who: str) -> Iterator[Problem]:
    ask = "Do not use it; ask the consortium's officer"
    authority = certificates.read_certificate(book.authority)
    if authority is None or not certificates.is_authority(authority):
        yield Problem(who, "the certificate of an authority for members", "something else", ask)
        return
    names = [one.name for one in book.members]
    if names != sorted(names):
        yield Problem(who, "members by ascending name", "another order", ask)
    for word, count in Counter(dns(name) for name in names).items():
        if count > 1:
            yield Problem(
                who, "names that differ in more than case and punctuation", f"{count} members like {word}", ask
            )
    keys = Counter(key for one in book.members for key in (one.verifying, one.sealing))
    keys.update(key for one in book.revoked for key in (one.verifying, one.sealing))
    for key, count in keys.items():
        if count > 1 or key == book.public:
            yield Problem(who, "keys that belong to one member each", f"{key.hex()[:16]}... more than once", ask)
    if sum(one.role == "coordinator" for one in book.members) > 1:
        yield Problem(who, "at most one coordinator", "several", ask)
    for one in book.members:
        found = certificates.read_certificate(one.der)
        if (
            found is None
            or not certificates.issued_by(found, authority)
            or not certificates.is_for(found, one.name, one.role)
        ):
            yield Problem(who, f"a certificate of this authority for {one.role} {one.name}", "something else", ask)
    try:
        book.sites.verify(book.public)
    except ProtocolError as error:
        yield from error.problems
