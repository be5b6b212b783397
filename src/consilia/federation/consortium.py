"""The keys of a simulated consortium: each site's in its own file, the coordinator's and the consortium's in the home folder."""

import os
import secrets
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from consilia.core.errors import StoreError
from consilia.crypto.keys import ExchangeKey
from consilia.crypto.signing import SEED_SIZE, SigningKey
from consilia.rounds.secure.sessions import Party
from consilia.secagg.roster import Identity, Roster
from consilia.store.ledger_store import SiteStore


@dataclass(frozen=True)
class Consortium:
    """Who the sites of a simulation are.

    Attributes:
        parties: What each site brings along.
        roster: All sites' public keys, signed.
        signing: The coordinator's key.
    """

    parties: Mapping[str, Party]
    roster: Roster
    signing: SigningKey

    def require(self, began_with: str | None) -> None:
        """Check that the coordinator's key is the one that a run began with.

        Args:
            began_with: Its public half in hex, as the journal has it.

        Raises:
            StoreError: If it is another: sites would take every round for a forgery.
        """
        if began_with != self.signing.public.hex():
            raise StoreError.of("the coordinator's key", needs="the one this run began with", got="another",
                                hint="Restore coordinator.key of CONSILIA_HOME, or start a new run")  # fmt: skip

    @classmethod
    def of(cls, stores: Iterable[SiteStore], home: Path) -> "Consortium":
        """Return the consortium whose keys lie in these files; keys that are missing are made.

        They outlive the run, so they come from the operating system's generator in the reproducible mode, too: a private run
        that finds them later relies on them.

        Raises:
            StoreError: If a file cannot be read or written.
        """
        identities = {store.site: _identity(store) for store in stores}
        consortium, signing = (_key(home / name) for name in ("consortium.key", "coordinator.key"))
        roster = Roster.signed([identity.member for identity in identities.values()], consortium)
        parties = {
            name: Party(identity, roster, consortium.public, signing.public) for name, identity in identities.items()
        }
        return cls(parties, roster, signing)


def _identity(store: SiteStore) -> Identity:
    seed = store.sessions.identity(secrets.token_bytes(2 * SEED_SIZE))
    return Identity(store.site, SigningKey(seed[:SEED_SIZE]), ExchangeKey(seed[SEED_SIZE:]))


def _key(path: Path) -> SigningKey:
    """Return the key in a file that only its owner may read, and make it where there is none."""
    try:
        if not path.exists():
            _make(path)
        seed = path.read_bytes()
    except OSError as error:
        raise StoreError.of(f"key {path}", needs="a file that this user may read and write", got=error.strerror or "an error",
                            hint="Check the folder's permissions, or set CONSILIA_HOME to another") from None  # fmt: skip
    if len(seed) != SEED_SIZE:
        raise StoreError.of(f"key {path}", needs=f"{SEED_SIZE} bytes", got=f"{len(seed)} bytes",
                            hint="It was damaged: restore it from a copy; runs under way need this very key")  # fmt: skip
    return SigningKey(seed)


def _make(path: Path) -> None:
    """Make a key, whole or not at all; where two processes make it at once, both go on with the first."""
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=path.name)  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(SEED_SIZE))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(aside, path)
    finally:
        os.unlink(aside)
