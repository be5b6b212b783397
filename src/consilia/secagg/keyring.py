"""What a site keeps secret in a session, all drawn from one seed, so that the same events always make the same bytes.

An envelope carries a site's two shares to one holder: commitments to both (2 x 32 bytes, for the coordinator, which refuses
wrong shares by them), then both shares, locked for the holder alone.
"""

import hmac
from dataclasses import dataclass
from hashlib import sha256

from consilia.core.errors import ProtocolError
from consilia.core.randomness import SecretRng
from consilia.crypto.keys import KEY_SIZE, ExchangeKey, derive
from consilia.crypto.sealing import lock, unlock
from consilia.crypto.shamir import SHARE_SIZE, split
from consilia.secagg.messages import Advert
from consilia.secagg.params import Session

HASH_SIZE = 32
ENVELOPE_SIZE = 2 * HASH_SIZE + 2 * SHARE_SIZE + 16  # the last 16 are the lock's tag
OWN_MASK, MASK_KEY = 0, 1  # the two kinds of shares, in the order of an envelope


@dataclass(frozen=True)
class Pair:
    """Both shares of one owner that one holder keeps; its text never shows them."""

    own_mask: bytes
    mask_key: bytes

    def __repr__(self) -> str:
        return "Pair(...)"


class Keyring:
    """The secrets of one site in one session.

    Args:
        session: The session.
        site: The site's name.
        seed: 32 secret bytes that were never used before.
    """

    def __init__(self, session: Session, site: str, seed: bytes) -> None:
        self._session, self._site, self._rng = session, site, SecretRng(seed)
        self._channel = ExchangeKey.draw(self._rng.derive("channel"))
        self._mask = ExchangeKey.draw(self._rng.derive("mask"))
        self._own = self._rng.derive("own mask").token(KEY_SIZE)
        self._agreed: dict[bytes, bytes] = {}
        self._shared: dict[tuple[int, tuple[str, ...], bytes], dict[str, Pair]] = {}
        self._opened: dict[tuple[str, bytes, bytes], Pair] = {}

    def unsigned(self) -> Advert:
        """Return the site's advert, not signed yet."""
        return Advert(self._channel.public, self._mask.public, commit_seed(self._session, self._site, self._own), b"")

    def pairs(self, threshold: int, holders: tuple[str, ...], adverts: bytes) -> dict[str, Pair]:
        """Return the shares of the site's two secrets, by holder; the same again for the same adverts."""
        asked = (threshold, holders, adverts)
        if asked in self._shared:  # the site asks for its own again when it gives shares away
            return self._shared[asked]
        numbers = {self._session.number(name): name for name in holders}
        kinds = [
            split(secret, threshold, numbers, self._rng.derive("shares", kind, adverts.hex()))
            for kind, secret in ((OWN_MASK, self._own), (MASK_KEY, self._mask.private))
        ]
        pairs = {name: Pair(kinds[OWN_MASK][x], kinds[MASK_KEY][x]) for x, name in numbers.items()}
        self._shared[asked] = pairs
        return pairs

    def envelope(self, holder: str, advert: Advert, pair: Pair, bound: bytes) -> bytes:
        """Return the envelope for a holder, whose advert this is."""
        head = b"".join(commit_share(self._session, self._site, holder, kind, share)
                        for kind, share in ((OWN_MASK, pair.own_mask), (MASK_KEY, pair.mask_key)))  # fmt: skip
        if holder == self._site:  # it keeps its own shares; the commitments are for the coordinator
            return head
        key = self._lock_key(holder, advert, self._site, holder, bound)
        return head + lock(key, pair.own_mask + pair.mask_key, head)

    def open(self, owner: str, advert: Advert, envelope: bytes, bound: bytes) -> Pair:
        """Return the shares in an envelope from an owner, whose advert this is.

        Raises:
            ProtocolError: If it does not open, or its commitments are to other shares.
        """
        if (owner, envelope, bound) in self._opened:  # at the inbox; asked for again when shares are given away
            return self._opened[owner, envelope, bound]
        who = f"the envelope from {owner}"
        head, locked = envelope[: 2 * HASH_SIZE], envelope[2 * HASH_SIZE :]
        shares = unlock(self._lock_key(owner, advert, owner, self._site, bound), locked, head, who=who)
        pair = Pair(shares[:SHARE_SIZE], shares[SHARE_SIZE:])
        meant = b"".join(commit_share(self._session, owner, self._site, kind, share)
                         for kind, share in ((OWN_MASK, pair.own_mask), (MASK_KEY, pair.mask_key)))  # fmt: skip
        if not hmac.compare_digest(meant, head):
            raise ProtocolError.of(who, needs="shares that its commitments are to", got="others",
                                   hint="That site is broken or hostile")  # fmt: skip
        self._opened[owner, envelope, bound] = pair
        return pair

    def own_key(self, bound: bytes) -> bytes:
        """Return the key of the site's own mask."""
        return own_mask_key(self._own, self._site, bound)

    def pair_key(self, peer: str, advert: Advert, bound: bytes) -> bytes:
        """Return the key of the mask shared with a peer, whose advert this is."""
        return pair_mask_key(self._mask, self._site, peer, advert.mask, bound)

    def _lock_key(self, peer: str, advert: Advert, sender: str, reader: str, bound: bytes) -> bytes:
        if advert.channel not in self._agreed:  # one agreement serves both directions
            self._agreed[advert.channel] = self._channel.agree(advert.channel, who=f"the advert of {peer}")
        return derive(self._agreed[advert.channel], info=_info(b"envelope", bound, sender, reader))


def own_mask_key(seed: bytes, site: str, bound: bytes) -> bytes:
    """Return the key of a site's own mask from its seed."""
    return derive(seed, info=_info(b"own mask", bound, site))


def pair_mask_key(private: ExchangeKey, site: str, peer: str, public: bytes, bound: bytes) -> bytes:
    """Return the key of the mask that two sites share: the same from both ends.

    Args:
        private: The site's mask key.
        site: Its name.
        peer: The other's name.
        public: The other's public mask key.
        bound: Digest of the session's context and all adverts.
    """
    agreed = private.agree(public, who=f"the advert of {peer}")
    return derive(agreed, info=_info(b"pair mask", bound, *sorted((site, peer))))


def adds(site: str, peer: str) -> bool:
    """Return whether `site` adds the mask it shares with `peer`, which then subtracts it."""
    return peer < site


def commit_seed(session: Session, site: str, seed: bytes) -> bytes:
    """Return the commitment to the seed of a site's own mask: 256 uniform bits hide themselves behind their hash."""
    return sha256(_info(b"commit seed", session.context, site) + seed).digest()


def commit_share(session: Session, owner: str, holder: str, kind: int, share: bytes) -> bytes:
    """Return the commitment to a share, which is as hard to guess as the secret."""
    return sha256(_info(b"commit share", session.context, owner, holder) + bytes([kind]) + share).digest()


def _info(purpose: bytes, bound: bytes, *names: str) -> bytes:
    # Each name after its length: ("ab", "c") and ("a", "bc") are different keys.
    return b"consilia secagg 1 " + purpose + b"\0" + bound + "".join([f"{len(name)}:{name}" for name in names]).encode()
