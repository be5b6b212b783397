"""The consortium's folder: the keys that sign, and the roster they keep."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from consilia.core.errors import PlanError, Problem, StoreError
from consilia.core.randomness import SecretRng
from consilia.crypto.signing import SigningKey
from consilia.transport.credentials import book as books
from consilia.transport.credentials import certificates, files, keyfiles, names, standing
from consilia.transport.credentials.book import Book, Entry, Revoked
from consilia.transport.credentials.book_check import LONGEST_REASON, MOST_MEMBERS
from consilia.transport.credentials.reading import shown, text
from consilia.transport.credentials.request import Request
from consilia.transport.credentials.seen import remember

KEY, AUTHORITY = "consortium.key", "ca.key"


@dataclass(frozen=True)
class Office:
    """Where a consortium's officer works.

    Attributes:
        folder: The folder.
        key: The consortium's private key: it signs rosters.
        authority: Who issues certificates.
        book: The newest roster.
    """

    folder: Path
    key: SigningKey = field(repr=False)
    authority: certificates.Authority
    book: Book

    @classmethod
    def found(cls, folder: Path, consortium: str, rng: SecretRng, now: datetime) -> "Office":
        """Make a consortium: fresh keys and a roster without members.

        Raises:
            PlanError: If the name is none, or the folder holds something.
            StoreError: If it cannot be written.
        """
        problem = names.name_problem(consortium, "the consortium's name")
        if problem is not None:
            raise PlanError([problem])
        key, authority = SigningKey.draw(rng), certificates.Authority.create(consortium, now)
        book = Book.signed(key, consortium=consortium, version=1, issued=now, authority=certificates.der(authority.certificate),
                           members=(), revoked=())  # fmt: skip
        files.make_folder(folder, {
            KEY: (keyfiles.consortium_bytes(consortium, key), files.SECRET),
            AUTHORITY: (certificates.key_pem(authority.key), files.SECRET),
            books.FILE: (book.to_bytes(), files.PUBLIC),
        })  # fmt: skip
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path) -> "Office":
        """Read a consortium's folder.

        Raises:
            StoreError: If its keys are missing, damaged or readable by others, or its roster is not theirs or an old one.
        """
        key = keyfiles.read_consortium(folder / KEY)
        book = Book.read(folder / books.FILE, key.public)
        remember(folder, book)
        own = certificates.read_key(files.read_secret(folder / AUTHORITY), f"key {folder / AUTHORITY}")
        if not certificates.same_key(own.public_key(), book.ca.public_key()):
            raise StoreError.of(f"key {folder / AUTHORITY}", needs="to be the authority's in the roster", got="another",
                                hint="Restore it from a copy")  # fmt: skip
        return cls(folder, key, certificates.Authority(own, book.ca), book)

    def check(self, requests: Sequence[Request]) -> None:
        """Check that these requests can be signed together.

        Raises:
            StoreError: With every reason why not.
        """
        problems = [problem for request in requests for problem in self._faults(request)]
        if not problems:
            problems = self._together(requests)
        if problems:
            raise StoreError(problems)

    def sign(self, requests: Sequence[Request], now: datetime) -> "Office":
        """Take members on, or renew their certificates, in one new version of the roster; what was signed before stays.

        Raises:
            StoreError: With every reason why a request cannot be signed; then none is. Or if the clock is behind the last
                roster's date, or the roster cannot be written.
        """
        self.check(requests)
        fresh = [request for request in requests if not self.has(request)]
        if not fresh:
            return self
        members = {**self.book.by_name, **{request.name: self._entry(request, now) for request in fresh}}
        return self.publish(self._next(list(members.values()), list(self.book.revoked), now))

    def has(self, request: Request) -> bool:
        """Return True if the roster holds the certificate that this request asked for."""
        entry = self.book.by_name.get(request.name)
        return (
            entry is not None
            and _same(entry, request)
            and certificates.same_key(request.tls, entry.certificate.public_key())
        )

    def revoked(self, name: str, reason: str, now: datetime) -> Book:
        """Return the next version of the roster, in which no key or certificate of a member counts any more; `publish` it.

        Raises:
            PlanError: If the reason is empty or too long for a line, or there is no such member.
            StoreError: If the clock is behind the last roster's date.
        """
        problems = []
        entry = self.book.by_name.get(name)
        if entry is None:
            known = ", ".join(self.book.by_name) or "none"
            problems.append(Problem(f"member {name!r}", "to be on the roster", f"members: {known}", "Name one of them"))
        try:
            text(LONGEST_REASON)(reason)
        except ValueError as error:
            problems.append(
                Problem("option --reason", str(error), repr(reason[:80]), "Say why; every member will read it")
            )
        if problems or entry is None:
            raise PlanError(problems)
        gone = Revoked(
            entry.name, entry.role, entry.verifying, entry.sealing, standing.serial_of(entry.certificate), now, reason
        )
        rest = [member for member in self.book.members if member.name != name]
        return self._next(rest, [*self.book.revoked, gone], now)

    def _next(self, members: list[Entry], revoked: list[Revoked], now: datetime) -> Book:
        if now < self.book.issued - certificates.SKEW:
            last = shown(self.book.issued)
            raise StoreError.of("this machine's clock", needs=f"to be past {last}, when the last roster was signed",
                                got=shown(now), hint="Set it: what is signed now must be newer than before")  # fmt: skip
        return Book.signed(self.key, consortium=self.book.consortium, version=self.book.version + 1, issued=now,
                           authority=self.book.authority, members=members, revoked=revoked)  # fmt: skip

    def publish(self, book: Book) -> "Office":
        """Put the next version of the roster in the old one's place.

        Raises:
            StoreError: If it cannot be written.
        """
        raw = book.to_bytes()
        book = Book.read(raw, self.key.public)  # nobody gets a roster that no member would take
        files.replace(self.folder / books.FILE, raw)
        remember(self.folder, book)
        return Office(self.folder, self.key, self.authority, book)

    def _entry(self, request: Request, now: datetime) -> Entry:
        certificate = self.authority.issue(request.name, request.role, request.tls, now)
        return Entry(request.name, request.role, request.verifying, request.sealing, certificates.der(certificate))

    def _faults(self, request: Request) -> list[Problem]:
        """Return why this request alone cannot be signed."""
        who = f"the request of {request.role} {request.name}"
        if any({gone.verifying, gone.sealing} & {request.verifying, request.sealing} for gone in self.book.revoked):
            return [Problem(who, "keys that were never revoked", "those of a revoked member",
                            "A member comes back with fresh keys: consilia roster add, in a new folder")]  # fmt: skip
        entry = self.book.by_name.get(request.name)
        if entry is None:
            return [] if request.renews is None else [
                Problem(who, "its certificate on the roster", "none to renew", "Ask for a new one: consilia roster add")
            ]  # fmt: skip
        if not _same(entry, request):
            return [Problem(who, f"the keys and role of the {entry.role} {entry.name} on the roster", "others",
                            f"If they were lost or stolen: consilia roster revoke {entry.name}; then sign this")]  # fmt: skip
        if not self.has(request) and request.renews != standing.serial_of(entry.certificate):
            return [Problem(who, "to renew the certificate on the roster", "an older request, or one signed before",
                            f"At the member: consilia roster renew {entry.name}; an old one may come from a thief")]  # fmt: skip
        return []

    def _together(self, requests: Sequence[Request]) -> list[Problem]:
        """Return why these requests cannot be signed beside each other and the present members."""
        problems = []
        after: dict[str, Entry | Request] = {**self.book.by_name, **{request.name: request for request in requests}}
        if len({request.name for request in requests}) < len(requests):
            problems.append(
                Problem("consilia roster sign", "one request a member", "several of one name", "Name each once")
            )
        for request in requests:
            who = f"the request of {request.role} {request.name}"
            others = [one for one in after.values() if one.name != request.name]
            if any(one.dns == request.dns for one in others):
                problems.append(Problem(who, "a name that differs in more than case and punctuation from all others",
                                        "one that reads like another member's", "Have it choose another name"))  # fmt: skip
            if any({one.verifying, one.sealing} & {request.verifying, request.sealing} for one in others):
                problems.append(Problem(who, "keys of its own", "another member's", "Have it make fresh ones"))
            if any(request.tls == one.tls for one in others):
                problems.append(Problem(who, "a TLS key of its own", "another member's", "Have it make a fresh one"))
            if request.role == "coordinator" and any(one.role == "coordinator" for one in others):
                problems.append(Problem(who, "to be the only coordinator", "a second one",
                                        "Revoke the other first: consilia roster revoke"))  # fmt: skip
        if len(after) > MOST_MEMBERS:
            problems.append(Problem("the roster", f"at most {MOST_MEMBERS} members", f"{len(after)}", "Revoke some"))
        return problems


def _same(entry: Entry, request: Request) -> bool:
    return (entry.role, entry.verifying, entry.sealing) == (request.role, request.verifying, request.sealing)
