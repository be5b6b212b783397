"""The one key of Paillier mode: who makes it, who holds it, what it opens."""

import hashlib
import hmac
import math
from collections.abc import Set
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from consilia.core.errors import PlanError, ProtocolError
from consilia.core.randomness import SecretRng
from consilia.core.update import Bytes
from consilia.crypto.paillier_integers import number, secret_power
from consilia.crypto.paillier_lanes import Lanes
from consilia.crypto.paillier_opening import Opening
from consilia.crypto.paillier_primes import is_prime, prime
from consilia.crypto.paillier_public import LEAST_BITS, MOST_BITS, PaillierPublic, allowed, malformed
from consilia.crypto.paillier_tags import tag

LIMIT = (
    "Any one site together with the coordinator: every site holds the same key, so the two decrypt every site's update."
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
        None against those who hold it: see `LIMIT`. A coordinator alone, even one that breaks the protocol, learns one sum
        a context, of at least `fewest` sites' vectors: `decrypt` opens nothing else.

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

    @cached_property
    def group(self) -> bytes:
        """The sites' common key for tags, 32 bytes."""
        return hashlib.sha256(f"consilia paillier tags {self.p} {self.q}".encode()).digest()

    def decrypt(
        self, total: Bytes, opening: Opening, *, lanes: Lanes, site: int, answered: Set[bytes]
    ) -> NDArray[np.int64]:
        """Open a sum, shape (dim,). A site does this **once a context**: it stores context and answer before it sends them.

        Args:
            total: What `PaillierSums.add` returned.
            opening: What is asked for, judged against the plan.
            lanes: Those that the vectors were encrypted with.
            site: The number of the site that is asked.
            answered: The contexts that this site answered for before; it may send the same bytes again, and nothing else.

        Raises:
            ProtocolError: If it is not this site's turn or no longer, too few vectors or others than the cohort's are asked
                for, the total is malformed, or it is not the sum of exactly those.

        Source:
            Paillier (1999), section 7: decryption modulo each prime, put together.
        """
        opening.require_proper(site, answered)
        ciphertexts, claimed = self.public.read(total, lanes.plaintexts(opening.dim), who="an encrypted sum")
        half_p, half_q = _Half(self.p, self.q), _Half(self.q, self.p)
        inverse = pow(number(self.q), -1, self.p)
        plaintexts = []
        for ciphertext in ciphertexts:
            in_p, in_q = half_p.plaintext(ciphertext), half_q.plaintext(ciphertext)
            plaintexts.append(in_q + self.q * ((in_p - in_q) * inverse % self.p))
        size = self.public.tag_size
        expected = tag(self.public.n, self.group, opening.context, plaintexts, opening.contributors)
        if not hmac.compare_digest(claimed.to_bytes(size, "big"), int(expected).to_bytes(size, "big")):
            raise ProtocolError.of(
                "a sum to open", needs="the sum of exactly what the listed sites encrypted for this context", got="another",
                hint="The coordinator or the network changed it: nothing of it was told",
            )  # fmt: skip
        return lanes.unpack(plaintexts, opening.dim, added=len(opening.contributors))

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
