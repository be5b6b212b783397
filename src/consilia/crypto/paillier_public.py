"""A Paillier modulus: how ciphertexts are checked, written and blinded."""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from consilia.core.errors import ProtocolError
from consilia.core.update import Bytes
from consilia.crypto.paillier_base import FixedBase
from consilia.crypto.paillier_integers import number
from consilia.crypto.paillier_lanes import ciphertext_size, tag_size

LEAST_BITS, MOST_BITS = 2048, 8192
EXPONENT = 64  # bytes of the random exponent of a mask


@dataclass(frozen=True)
class PaillierPublic:
    """The modulus: all it takes to encrypt and to add.

    Attributes:
        n: A product of two secret primes, its highest bit set.
    """

    n: int

    @property
    def bits(self) -> int:
        """Bits of the modulus."""
        return self.n.bit_length()

    @property
    def size(self) -> int:
        """Bytes of a ciphertext."""
        return ciphertext_size(self.bits)

    @property
    def tag_size(self) -> int:
        """Bytes of a tag."""
        return tag_size(self.bits)

    @cached_property
    def square(self) -> int:
        """The modulus of ciphertexts, n^2."""
        return number(self.n * self.n)

    @cached_property
    def masks(self) -> FixedBase:
        """Powers of h_s. Making the table takes a fraction of a second, once; only who encrypts needs it."""
        seed = hashlib.shake_256(b"consilia paillier base" + self.n.to_bytes(self.size, "big"))
        x = int.from_bytes(seed.digest(self.size), "big")  # twice as long as n: x mod n is uniform
        return FixedBase(pow(number(-x * x % self.n), self.n, self.square), self.square, EXPONENT)

    def read(self, payload: Bytes, count: int, *, who: str) -> tuple[list[int], int]:
        """Return the `count` ciphertexts of a payload and its tag.

        Raises:
            ProtocolError: If the payload has another length, a ciphertext is not in [1, n^2) or shares a factor with n, or
                the tag is not below n.
        """
        end = count * self.size
        if len(payload) != end + self.tag_size:
            raise malformed(
                who, f"{count} ciphertexts of {self.size} bytes and a tag of {self.tag_size}", f"{len(payload)} bytes"
            )
        found = [
            number(int.from_bytes(payload[start : start + self.size], "big")) for start in range(0, end, self.size)
        ]
        n, product, tag = number(self.n), number(1), int.from_bytes(payload[end:], "big")
        for ciphertext in found:
            if ciphertext >= self.square:
                raise malformed(who, "ciphertexts in [1, n^2)", "a number outside")
            product = product * (ciphertext % n) % n  # one greatest common divisor for all of them
        if math.gcd(int(product), self.n) != 1:  # 0 is none either
            raise malformed(who, "ciphertexts coprime to n", "one that is not")
        if tag >= self.n:
            raise malformed(who, "a tag below n", "a number above")
        return found, tag

    def write(self, ciphertexts: Iterable[int], tag: int) -> bytes:
        """Return ciphertexts and a tag as a payload."""
        numbers = [int(ciphertext).to_bytes(self.size, "big") for ciphertext in ciphertexts]
        return b"".join(numbers) + int(tag).to_bytes(self.tag_size, "big")

    def to_bytes(self) -> bytes:
        """Return the modulus, big-endian."""
        return self.n.to_bytes(self.bits // 8, "big")

    @classmethod
    def from_bytes(cls, payload: Bytes, *, who: str) -> "PaillierPublic":
        """Read what `to_bytes` wrote.

        Raises:
            ProtocolError: If it is no odd number of exactly an allowed number of bits.
        """
        public = cls(int.from_bytes(payload, "big"))
        if not allowed(len(payload) * 8) or public.bits != len(payload) * 8 or public.n % 2 == 0:
            raise malformed(
                who, f"an odd modulus of {LEAST_BITS} to {MOST_BITS} bits", f"{len(payload)} bytes of another kind"
            )
        return public


def allowed(bits: int) -> bool:
    """Return whether a key may have a modulus of this many bits: each prime must come in whole bytes."""
    return LEAST_BITS <= bits <= MOST_BITS and bits % 16 == 0


def malformed(who: str, needs: str, got: str) -> ProtocolError:
    """Return the refusal of bytes that came from the other end."""
    return ProtocolError.of(
        who, needs=needs, got=got, hint="Both ends must have checked the same plan and hold the same key"
    )
