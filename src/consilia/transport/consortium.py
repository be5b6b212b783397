"""The keys of a simulated consortium: each site's in its own file, the coordinator's and the consortium's in the home folder."""

import os
import secrets
from collections.abc import Iterable, Mapping
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
        try:
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            seed = path.read_bytes()
        else:
            seed = secrets.token_bytes(SEED_SIZE)
            with os.fdopen(handle, "wb") as file:
                file.write(seed)
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        raise StoreError.of(f"key {path}", needs="a file that this user may read and write", got=error.strerror or "an error",
                            hint="Check the folder's permissions, or set CONSILIA_HOME to another") from None  # fmt: skip
    if len(seed) != SEED_SIZE:
        raise StoreError.of(f"key {path}", needs=f"{SEED_SIZE} bytes", got=f"{len(seed)} bytes",
                            hint="It was damaged: remove it, and a new one is made") from None  # fmt: skip
    return SigningKey(seed)
