"""Signatures: Ed25519."""

from dataclasses import dataclass, field
from functools import cached_property

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from consilia.core.errors import PlanError
from consilia.core.randomness import SecretRng

SEED_SIZE = 32
SIGNATURE_SIZE = 64


@dataclass(frozen=True)
class SigningKey:
    """A private Ed25519 key; its text never shows it.

    Attributes:
        seed: 32 secret bytes, the private key of RFC 8032.

    Raises:
        PlanError: If it has another length.
    """

    seed: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.seed, bytes) or len(self.seed) != SEED_SIZE:
            raise PlanError.of("a private Ed25519 key", needs=f"{SEED_SIZE} bytes", got="something else",
                               hint="Draw a key with SigningKey.draw")  # fmt: skip

    @classmethod
    def draw(cls, rng: SecretRng) -> "SigningKey":
        """Return a fresh key."""
        return cls(rng.token(SEED_SIZE))

    @cached_property
    def _key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.seed)

    @cached_property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Return the signature, 64 bytes: the same for the same message."""
        return self._key.sign(message)


def verify(public: bytes, signature: bytes, message: bytes) -> bool:
    """Return True if the owner of `public` signed exactly this message; bytes that are no key or signature give False."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
