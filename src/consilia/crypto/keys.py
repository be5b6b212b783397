"""Key agreement on Curve25519, and keys drawn from what was agreed."""

from dataclasses import dataclass, field
from functools import cached_property

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from consilia.core.errors import PlanError, ProtocolError
from consilia.core.randomness import SecretRng

KEY_SIZE = 32


@dataclass(frozen=True)
class ExchangeKey:
    """A private X25519 key; its text never shows it.

    Attributes:
        private: 32 secret bytes.

    Raises:
        PlanError: If it has another length.
    """

    private: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.private, bytes) or len(self.private) != KEY_SIZE:
            raise PlanError.of("a private X25519 key", needs=f"{KEY_SIZE} bytes", got="something else",
                               hint="Draw a key with ExchangeKey.draw")  # fmt: skip

    @classmethod
    def draw(cls, rng: SecretRng) -> "ExchangeKey":
        """Return a fresh key."""
        return cls(rng.token(KEY_SIZE))

    @cached_property
    def _key(self) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(self.private)

    @cached_property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return self._key.public_key().public_bytes_raw()

    def agree(self, peer: bytes, *, who: str) -> bytes:
        """Return the 32 bytes that both ends of an exchange know; take keys from them with `derive`, never use them as one.

        Args:
            peer: The other end's public key.
            who: Whose key it is, for the error.

        Raises:
            ProtocolError: If the key has another length, or is one of the few points that make the result known to all.
        """
        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(peer))
        except ValueError:
            raise ProtocolError.of(
                who, needs="a public X25519 key of full order (32 bytes)", got=f"{len(peer)} bytes that are none",
                hint="The other end is broken or hostile",
            ) from None  # fmt: skip


def derive(secret: bytes, *, info: bytes, salt: bytes = b"", size: int = KEY_SIZE) -> bytes:
    """Return `size` key bytes from a secret; another `info` gives unrelated bytes.

    Args:
        secret: Bytes with at least 256 bits of entropy for a key of 256 bits.
        info: What the key is for; it must name everything the key may not be used outside of.
        salt: Public bytes; empty means 32 zeros.
        size: Bytes wanted, at most 8160.

    Source:
        HKDF with SHA-256, RFC 5869, sections 2.2 and 2.3.
    """
    return HKDF(algorithm=SHA256(), length=size, salt=salt or None, info=info).derive(secret)
