"""A consortium in a folder: an officer, a coordinator, two sites and an operator, with real keys and files."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from consilia.core.randomness import SecretRng
from consilia.transport.credentials import member
from consilia.transport.credentials.book import Book, Entry
from consilia.transport.credentials.certificates import Authority, der, new_key
from consilia.transport.credentials.credentials import Credentials
from consilia.transport.credentials.names import Role
from consilia.transport.credentials.office import Office
from consilia.transport.credentials.request import Request

NOW = datetime(2027, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
ROLES: Mapping[str, Role] = {"hub": "coordinator", "north": "site", "south": "site", "olga": "operator"}


class World:
    """The folders of everybody, below one.

    Attributes:
        folder: Holds a folder for the consortium and one for each member.
        now: When keys are signed.
    """

    def __init__(self, folder: Path, now: datetime = NOW, seed: int = 0) -> None:
        self.folder, self.now = folder, now
        self._rng = SecretRng(bytes([seed]) * 32)

    @classmethod
    def made(cls, folder: Path, now: datetime = NOW, roles: Mapping[str, Role] = ROLES, seed: int = 0) -> "World":
        """Found a consortium; every member has its roster."""
        world = cls(folder, now, seed)
        Office.found(folder / "consortium", "heart-study", world._rng.derive("office"), now)
        world.sign(*(world.join(name, role) for name, role in roles.items()))
        for name in roles:
            world.take(name)
        return world

    @property
    def office(self) -> Office:
        """The officer's folder as it is now."""
        return Office.open(self.folder / "consortium")

    @property
    def book(self) -> Book:
        """The newest roster."""
        return self.office.book

    def join(self, name: str, role: Role, folder: str | None = None) -> Request:
        """Make a member's folder."""
        place = self.folder / (folder or name)
        return member.join(place, name, role, self._rng.derive(str(place))).request

    def sign(self, *requests: Request) -> Book:
        """Sign at the office."""
        return self.office.sign(requests, self.now).book

    def revoke(self, name: str, reason: str = "left the study") -> Book:
        """Revoke at the office."""
        office = self.office
        return office.publish(office.revoked(name, reason, self.now)).book

    def take(self, name: str, folder: str | None = None) -> Credentials:
        """Bring the newest roster to a member."""
        source = self.folder / "consortium" / "roster.json"
        return member.install(self.folder / (folder or name), name, source, self.now, lambda book: True)

    def load(self, name: str) -> Credentials:
        """Read a member's folder."""
        return Credentials.load(self.folder / name, self.now)

    def signed(self, **changes: object) -> Book:
        """Return a version of the roster with changed parts, under the consortium's own signatures."""
        book = self.book
        parts = {
            "consortium": book.consortium, "version": book.version + 1, "issued": book.issued,
            "authority": book.authority, "members": book.members, "revoked": book.revoked,
        }  # fmt: skip
        return Book.signed(self.office.key, **{**parts, **changes})  # type: ignore[arg-type]

    def entry(self, name: str, role: Role, *, authority: Authority | None = None, now: datetime | None = None) -> Entry:
        """Return a member with keys of nobody and a certificate."""
        source = self.office.authority if authority is None else authority
        certificate = source.issue(name, role, new_key().public_key(), self.now if now is None else now)
        fresh = self._rng.derive("entry", name)
        return Entry(name, role, fresh.token(32), fresh.token(32), der(certificate))
