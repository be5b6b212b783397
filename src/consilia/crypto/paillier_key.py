"""The one key of Paillier mode: who makes it, who holds it, what it opens."""

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from consilia.core.errors import PlanError
from consilia.core.randomness import SecretRng
from consilia.core.update import Bytes
from consilia.crypto.paillier_integers import number, secret_power
from consilia.crypto.paillier_lanes import Lanes
from consilia.crypto.paillier_primes import is_prime, prime
from consilia.crypto.paillier_public import LEAST_BITS, MOST_BITS, PaillierPublic, allowed, malformed

LIMIT = (
    "Every site holds the same Paillier key: any one site together with the coordinator can decrypt every site's update, "
    "and so can a coordinator that gets a site to open something else than the agreed sum."
)


def require_key_bits(bits: int) -> None:
    """Refuse moduli that are too short, or whose primes do not come in whole bytes.

    Raises:
        PlanError: If `bits` is not a multiple of 16 from 2048 to 8192.
    """
    if not allowed(bits):
        raise PlanError.of(
            "a Paillier key", needs=f"{LEAST_BITS} bits (112 bits of security) to {MOST_BITS}, a multiple of 16",
            got=f"{bits}", hint="Take 3072 (128 bits of security)",
        )  # fmt: skip


@dataclass(frozen=True)
class PaillierKey:
    """The private key: made at one site, sealed to the others, never at the coordinator.

    Guarantees:
        None against those who hold it: see `LIMIT`. Sites must open only totals of the agreed vectors, and the
        coordinator must never be one of the sites.

    Attributes:
        p: A prime, 3 mod 4.
        q: Another one, of the same length.
    """

    p: int = field(repr=False)
    q: int = field(repr=False)

    @cached_property
    def public(self) -> PaillierPublic:
        """The half that may be given away."""
        return PaillierPublic(self.p * self.q)

    def decrypt(self, total: Bytes, dim: int, *, lanes: Lanes, added: int) -> NDArray[np.int64]:
        """Open the sum of `added` encrypted vectors of length `dim`, shape (dim,).

        Args:
            total: What `PaillierCipher.add` returned.
            dim: Length of the vectors.
            lanes: Those that the vectors were encrypted with.
            added: How many vectors the total must hold.

        Raises:
            ProtocolError: If the total is malformed, or is not a sum of that many vectors.

        Source:
            Paillier (1999), section 7: decryption modulo each prime, put together.
        """
        ciphertexts = self.public.read(total, lanes.plaintexts(dim), who="an encrypted sum")
        half_p, half_q = _Half(self.p, self.q), _Half(self.q, self.p)
        inverse = pow(number(self.q), -1, self.p)
        plaintexts = []
        for ciphertext in ciphertexts:
            in_p, in_q = half_p.plaintext(ciphertext), half_q.plaintext(ciphertext)
            plaintexts.append(in_q + self.q * ((in_p - in_q) * inverse % self.p))
        return lanes.unpack(plaintexts, dim, added=added)

    def to_bytes(self) -> bytes:
        """Return the primes, big-endian and of the same length, to be sealed to another site and to nobody else."""
        half = self.public.bits // 16
        return self.p.to_bytes(half, "big") + self.q.to_bytes(half, "big")

    @classmethod
    def from_bytes(cls, payload: Bytes, *, who: str) -> "PaillierKey":
        """Read what `to_bytes` wrote.

        Raises:
            ProtocolError: If it is no key of an allowed length that `keypair` could have made.
        """
        half = len(payload) // 2
        key = cls(int.from_bytes(payload[:half], "big"), int.from_bytes(payload[half:], "big"))
        if not allowed(len(payload) * 8) or not key.sound() or not (is_prime(key.p) and is_prime(key.q)):
            raise malformed(
                who, f"a Paillier key of {LEAST_BITS} to {MOST_BITS} bits", f"{len(payload)} bytes of no such key"
            )
        return key

    def sound(self) -> bool:
        """Return whether p and q, if prime, make a key: of full length, 3 mod 4, p - 1 and q - 1 share only 2 (so p is not q)."""
        half = self.p.bit_length()
        full = half == self.q.bit_length() and self.public.bits == 2 * half
        return full and self.p % 4 == self.q % 4 == 3 and math.gcd(self.p - 1, self.q - 1) == 2


class _Half:
    """Decryption modulo one prime of n = own x other."""

    def __init__(self, own: int, other: int) -> None:
        self._prime, self._square = number(own), number(own * own)
        # (1 + n)^(p - 1) = 1 - n mod p^2, whose logarithm (x - 1) / p is -q mod p.
        self._inverse = pow(number(-other), -1, own)

    def plaintext(self, ciphertext: int) -> int:
        power = secret_power(ciphertext % self._square, self._prime - 1, self._square)
        return (power - 1) // self._prime * self._inverse % self._prime


def keypair(bits: int, rng: SecretRng) -> PaillierKey:
    """Make a key with a modulus of `bits` bits, in seconds.

    Args:
        bits: 3072 unless there is a reason.
        rng: A secret stream of the site that makes the key; the key is no more secret than this.

    Raises:
        PlanError: If `bits` is not a multiple of 16 from 2048 to 8192.
    """
    require_key_bits(bits)
    while True:
        key = PaillierKey(prime(bits // 2, rng), prime(bits // 2, rng))
        if key.sound():
            return key
