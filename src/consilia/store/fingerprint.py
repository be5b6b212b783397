"""Digests under a key of the site's own, so that the chain may show a change and nobody can test guesses against it."""

import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, insert, select

from consilia.dp.chain import Entry
from consilia.store.tables import site_key


@dataclass(frozen=True)
class DataChange:
    """The first charge for other rows than those before.

    Attributes:
        run: The run that met them.
        round: Its round; 0 where it was admitted with them.
        before: The fingerprint until then, under the site's key.
        after: The fingerprint from then on, under the site's key.
    """

    run: str
    round: int
    before: str
    after: str


def changes(entries: Iterable[Entry]) -> list[DataChange]:
    """Return where a population's chain goes on with other rows, in order."""
    found: list[DataChange] = []
    before: str | None = None
    for entry in entries:
        after = entry.body.get("fingerprint")
        if not isinstance(after, str):
            continue
        if before is not None and after != before:
            found.append(DataChange(entry.run, entry.round, before, after))
        before = after
    return found


class SiteKey:
    """The key in a site's file: 256 bits, made on first use.

    Guarantees:
        The chain's head leaves the site as a witness. Were the plain digest of rows, or of a release that is noised later,
        in it, whoever knows all but a part could test guesses of that part against the head; without the key nobody can.
    """

    def __init__(self) -> None:
        self._known: bytes | None = None

    def digest(self, connection: Connection, value: str) -> str:
        """Return a value under the key, in hex: equal for equal values. Makes the key where there is none."""
        key = self._find(connection)
        if key is None:
            # Not kept in memory: the transaction that writes it may be undone.
            key = secrets.token_bytes(32)
            connection.execute(insert(site_key).values(name="fingerprint", key=key))
        return _under(key, value)

    def fits(self, connection: Connection, value: str, digest: object) -> bool:
        """Say whether `digest` is that of `value`; never where the file has no key."""
        key = self._find(connection)
        return key is not None and digest == _under(key, value)

    def _find(self, connection: Connection) -> bytes | None:
        if self._known is None:
            self._known = connection.execute(select(site_key.c.key)).scalar()
        return self._known


def _under(key: bytes, value: str) -> str:
    return hmac.new(key, value.encode(), "sha256").hexdigest()
