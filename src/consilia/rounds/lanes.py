"""Whole numbers that ride beside an update through a secure sum: weights, losses, counts of right answers.

A number may be larger than the ring holds, so each is cut into limbs, small enough that the sum of all sites' limbs does
not wrap; the sums of the limbs then give the sum of the numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilia.core.ring import Ring

BITS = 48  # of one site's number
_LIMB = 56  # bits of the largest limb: sums of limbs stay whole in 64-bit words


@dataclass(frozen=True)
class Lanes:
    """`count` numbers in [0, 2^48), for sums over up to `sites` sites.

    Attributes:
        ring: Where sums are taken.
        sites: The most sites in a sum.
        count: How many numbers.

    Guarantees:
        The decoded sum is exact. Nothing is noised here: only numbers that may be known as a sum may ride.
    """

    ring: Ring
    sites: int
    count: int

    @property
    def _limb(self) -> int:
        return min(self.ring.bits - 1 - self.sites.bit_length(), _LIMB)

    @property
    def _limbs(self) -> int:
        return -(-BITS // self._limb)

    @property
    def width(self) -> int:
        """How many elements of the ring they take."""
        return self.count * self._limbs

    def encode(self, values: Sequence[int]) -> NDArray[np.int64]:
        """Return the limbs of each number, lowest first, shape (width,); a number out of range becomes the nearest in it."""
        mask = (1 << self._limb) - 1
        kept = [min(max(value, 0), (1 << BITS) - 1) for value in values]
        return np.array([value >> place * self._limb & mask for value in kept for place in range(self._limbs)], np.int64)

    def decode(self, sums: NDArray[np.int64]) -> list[int]:
        """Return the sums of the numbers from the sums of their limbs, shape (width,)."""
        rows = sums.reshape(self.count, self._limbs).tolist()
        return [sum(limb << place * self._limb for place, limb in enumerate(row)) for row in rows]
