"""Threshold RLWE, encryption: sums of vectors under a key that nobody holds.

A payload holds c_0 in coefficients, its quotient by the dropped primes, then c_1 transformed, 30 bits a residue:
(kept + 3) polynomials a block of 4096 lanes; then a tag. Lane 0 of a vector holds 1, so that an opened sum says how many
vectors are in it.

Guarantees:
    Ciphertexts hide their vectors from fewer than `threshold` sites together with the coordinator, if these follow the
    protocol, under RLWE (`rlwe_parameters`); from a coordinator alone even if it does not (`rlwe_tags`). Sums are exact.
    **Not covered**: that a ciphertext holds values in range; a coordinator together with a site. They
    can have any sum opened, also one that another site's vector is alone in: a ciphertext can be made out of others.

Source:
    Fan and Vercauteren (2012), Somewhat practical fully homomorphic encryption, section 3; additions only.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from consilia.core.randomness import SecretRng
from consilia.core.update import Bytes
from consilia.crypto import rlwe_tags
from consilia.crypto.cipher import require_bounded
from consilia.crypto.rlwe_field import Polynomials
from consilia.crypto.rlwe_keys import JointKey, KeyShare
from consilia.crypto.rlwe_ntt import GROUP, SIDE, transform
from consilia.crypto.rlwe_parameters import PRIMES, RlweParameters
from consilia.crypto.rlwe_residues import modulo, quotient
from consilia.crypto.rlwe_sampling import errors, ternary
from consilia.crypto.rlwe_wire import POLYNOMIAL, malformed, pack, unpack


@dataclass(frozen=True)
class RlweSums:
    """What the coordinator needs to add: the plan's numbers and no key.

    Attributes:
        parameters: The plan's.
    """

    parameters: RlweParameters

    @property
    def bound(self) -> int:
        """Largest absolute value of a coordinate of one vector."""
        return self.parameters.bound

    @property
    def count(self) -> int:
        """Largest number of vectors in a sum."""
        return self.parameters.count

    def add(self, payloads: Iterable[Bytes], dim: int) -> bytes:
        """Return the encrypted sum of encrypted vectors of length `dim`.

        Raises:
            ProtocolError: If there is none, there are more than `count`, or one is malformed.
        """
        moduli, blocks = (*self.parameters.kept, *PRIMES), self.parameters.blocks(dim)
        total = np.zeros((len(moduli), blocks, SIDE, SIDE), np.uint64)
        tags = np.zeros((len(PRIMES), rlwe_tags.TIMES), np.uint64)
        place = 0
        for place, payload in enumerate(payloads, 1):
            if place > self.count:
                raise malformed("an encrypted sum", f"at most {self.count} vectors", "more")
            polynomials, tag = rlwe_tags.split(payload)
            total += unpack(polynomials, moduli, blocks, who=f"encrypted vector {place}")
            tags += rlwe_tags.read(tag, who=f"encrypted vector {place}")
        if not place:
            raise malformed("an encrypted sum", "at least one vector", "none")
        return pack(modulo(total, moduli)) + rlwe_tags.write(modulo(tags, PRIMES))

    def expected_size(self, dim: int) -> int:
        """Return the bytes of an encrypted vector of length `dim`, or of a sum."""
        return (len(self.parameters.kept) + len(PRIMES)) * self.parameters.blocks(dim) * POLYNOMIAL + rlwe_tags.SIZE

    def to_open(self, total: Bytes, dim: int) -> Bytes:
        """Return the part of an encrypted sum that the sites need to open it: c_1 and the tag."""
        return memoryview(total)[len(self.parameters.kept) * self.parameters.blocks(dim) * POLYNOMIAL :]


@dataclass(frozen=True)
class RlweCipher(RlweSums):
    """A site's half, for one context: a `SumCipher`.

    Attributes:
        key: What the sites' ceremony gave.
        share: The site's own; it says which site this is.
        context: What the vector is for. **One vector a context**: a repeated message is the same bytes again.
    """

    key: JointKey = field(repr=False)
    share: KeyShare = field(repr=False)
    context: bytes

    def encrypt(self, values: NDArray[np.int64], rng: SecretRng) -> bytes:
        """Encrypt a vector of shape (d,) within the bound.

        Raises:
            PlanError: If a coordinate is beyond the bound, or the shape or type is another.
        """
        require_bounded(values, self.bound)
        blocks, kept = self.parameters.blocks(len(values)), self.parameters.kept
        lanes = np.zeros((blocks, SIDE, SIDE))
        lanes.ravel()[0], lanes.ravel()[1 : len(values) + 1] = 1, values  # a view: the array is contiguous
        out = np.empty((len(kept) + len(PRIMES), blocks, SIDE, SIDE), np.uint32)
        for start in range(0, blocks, GROUP):
            part = slice(start, min(start + GROUP, blocks))
            first, second = self._zero(part.stop - part.start, rng)
            for place, p in enumerate(kept):
                prime = transform(p).prime
                scaled = prime.times(lanes[part], prime.factor(self.parameters.step))
                out[place, part] = prime.residues(prime.reduce(first[place] + scaled))
            for place, p in enumerate(PRIMES):
                out[len(kept) + place, part] = transform(p).prime.residues(second[place])
        tag = rlwe_tags.tag(self.share.group, self.context, out[len(kept) :], [self.share.site])
        return pack(out) + rlwe_tags.write(tag)

    def _zero(self, blocks: int, rng: SecretRng) -> tuple[list[Polynomials], list[Polynomials]]:
        """Return encryptions of zero: c_0 modulo the kept primes, c_1 transformed modulo all."""
        u, e0, e1 = ternary(blocks, rng), errors(blocks, rng), errors(blocks, rng)
        first, second = [], []
        for p, (b, a) in zip(PRIMES, self.key.factors, strict=True):
            ntt, prime = transform(p), transform(p).prime
            transformed = ntt.forward_small(u)
            first.append(ntt.inverse(prime.times(transformed, b)) + e0)
            second.append(prime.reduce(prime.times(transformed, a) + ntt.forward_small(e1)))
        return quotient(first, len(self.parameters.kept)), second
