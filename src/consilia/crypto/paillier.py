"""Packed Paillier: about the size of the plain numbers, one key that every site holds.

The modulus is n = p q with p, q = 3 mod 4, the generator 1 + n: m is encrypted as (1 + m n) h_s^alpha mod n^2, where
h_s = h^n, h = -x^2 mod n and alpha is a fresh exponent of 512 bits. x is a hash of n, so nobody chooses h.
A payload holds a vector's ciphertexts, then its tag (`paillier_tags`).

Guarantees:
    Ciphertexts hide their vectors from anyone without the key, under the decisional composite residuosity assumption in
    the subgroup that h generates and with exponents that short (the proven form takes half as many bits as n).
    **One key opens everything**: see `paillier_key.LIMIT`. No proof comes with a ciphertext that its values are in range.
    Side channels: with gmpy2 decryption raises to the secret power in constant time; nothing else here is.

Source:
    Paillier (1999), Public-key cryptosystems based on composite degree residuosity classes.
    Damgard, Jurik and Nielsen (2010), A generalization of Paillier's public-key system with applications to electronic
    voting: the generator 1 + n and the base h_s.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from consilia.core.errors import PlanError
from consilia.core.randomness import SecretRng
from consilia.core.update import Bytes
from consilia.crypto.cipher import require_bounded
from consilia.crypto.paillier_integers import number
from consilia.crypto.paillier_lanes import Lanes
from consilia.crypto.paillier_public import EXPONENT, PaillierPublic, malformed
from consilia.crypto.paillier_tags import tag


@dataclass(frozen=True)
class PaillierSums:
    """What the coordinator needs to add: the modulus and the plan's numbers. To add is to multiply ciphertexts.

    Attributes:
        public: The modulus.
        lanes: How the plan's vectors lie in plaintexts.

    Raises:
        PlanError: If the lanes are made for a modulus of another length.
    """

    public: PaillierPublic
    lanes: Lanes

    def __post_init__(self) -> None:
        if self.lanes.bits != self.public.bits:
            raise PlanError.of("a Paillier cipher", needs=f"the plan's modulus of {self.lanes.bits} bits",
                               got=f"{self.public.bits} bits", hint="Make the key anew for this plan")  # fmt: skip

    @property
    def bound(self) -> int:
        """Largest absolute value of a coordinate of one vector."""
        return self.lanes.bound

    @property
    def count(self) -> int:
        """Largest number of vectors in a sum."""
        return self.lanes.count

    def expected_size(self, dim: int) -> int:
        """Return the bytes of an encrypted vector of length `dim`, or of a sum."""
        return self.lanes.size(dim)

    def add(self, payloads: Iterable[Bytes], dim: int) -> bytes:
        """Return the encrypted sum of encrypted vectors of length `dim`.

        Raises:
            ProtocolError: If there is none, there are more than `count`, or one is malformed.
        """
        public, total, tags = self.public, [number(1)] * self.lanes.plaintexts(dim), 0
        place = 0
        for place, payload in enumerate(payloads, 1):
            if place > self.count:
                raise malformed("an encrypted sum", f"at most {self.count} vectors", "more")
            ciphertexts, tagged = public.read(payload, self.lanes.plaintexts(dim), who=f"encrypted vector {place}")
            total = [a * b % public.square for a, b in zip(total, ciphertexts, strict=True)]
            tags += tagged
        if not place:
            raise malformed("an encrypted sum", "at least one vector", "none")
        return public.write(total, tags % public.n)


@dataclass(frozen=True)
class PaillierCipher(PaillierSums):
    """A site's half, for one context: a `SumCipher`. Keep `public` from round to round: it holds a table.

    Attributes:
        group: `PaillierKey.group`.
        context: What the vector is for (`paillier_opening.Opening`). **One vector a context, one context an update**: a
            repeated message is the same bytes again.
        site: The site's number.
    """

    group: bytes = field(repr=False)
    context: bytes
    site: int

    def encrypt(self, values: NDArray[np.int64], rng: SecretRng) -> bytes:
        """Encrypt a vector of shape (d,) within the bound.

        Raises:
            PlanError: If a coordinate is beyond the bound, or the shape or type is another.
        """
        require_bounded(values, self.bound)
        n, square, masks = number(self.public.n), self.public.square, self.public.masks
        plaintexts = self.lanes.pack(values)
        ciphertexts = [(1 + plain * n) * masks.power(rng.token(EXPONENT)) % square for plain in plaintexts]
        return self.public.write(ciphertexts, tag(self.public.n, self.group, self.context, plaintexts, [self.site]))
