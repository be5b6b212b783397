"""Whole numbers that ride beside an update through a secure sum: weights, losses, counts of right answers.

A number may be larger than an element of the sum, so each is cut into limbs small enough that sums of them do not wrap;
the sums of the limbs then give the sum of the numbers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BITS = 48  # of one site's number
_WEIGHT, _LOSS, _COUNT = 1 << 30, 1 << 20, 1 << 12  # steps per unit
_LARGE_LOSS = 1024.0


@dataclass(frozen=True)
class Lanes:
    """`count` numbers in [0, 2^48).

    Attributes:
        limb: Bits of a limb, at least 1.
        count: How many numbers.

    Guarantees:
        The decoded sum is exact where the sum of all sites' limbs is. Nothing is noised here: only numbers that may be known
        as a sum may ride.
    """

    limb: int
    count: int

    @property
    def _limbs(self) -> int:
        return -(-BITS // self.limb)

    @property
    def width(self) -> int:
        """How many elements they take."""
        return self.count * self._limbs

    def encode(self, values: Sequence[int]) -> NDArray[np.int64]:
        """Return the limbs of each number, lowest first, shape (width,); a number out of range becomes the nearest in it."""
        mask = (1 << self.limb) - 1
        kept = [min(max(value, 0), (1 << BITS) - 1) for value in values]
        return np.array([value >> place * self.limb & mask for value in kept for place in range(self._limbs)], np.int64)

    def decode(self, sums: NDArray[np.int64]) -> list[int]:
        """Return the sums of the numbers from the sums of their limbs, shape (width,)."""
        rows = sums.reshape(self.count, self._limbs).tolist()
        return [sum(limb << place * self.limb for place, limb in enumerate(row)) for row in rows]


def limb_bits(value_bound: int, largest_sum: int, sites: int) -> int:
    """Return how many bits a limb may have.

    Args:
        value_bound: Bound on one site's element.
        largest_sum: The largest sum that can be read back.
        sites: The most sites in a sum.
    """
    return max(1, (min(value_bound, largest_sum // sites) + 1).bit_length() - 1)


def update_numbers(weight: float, loss: float | None) -> list[int]:
    """Return what rides beside an update of an unprotected run: its weight in (0, 1], and weight x loss."""
    known = loss if loss is not None and math.isfinite(loss) else 0.0
    return [round(weight * _WEIGHT), round(min(max(known, 0.0), 2.0**20) * weight * _LOSS)]


def read_update(sums: Sequence[int]) -> tuple[float, float]:
    """Return (sum of weights, sum of weight x loss)."""
    return sums[0] / _WEIGHT, sums[1] / _LOSS


def score_numbers(metrics: Mapping[str, object]) -> list[int]:
    """Return what a site tells of a model as numbers whose sums mean something: rows, right rows, sum of losses.

    A loss that is not finite counts as a large one, so that the mean shows it.
    """
    rows, accuracy = (_number(metrics.get(key), 0.0) for key in ("n", "accuracy"))
    loss = _number(metrics.get("loss"), _LARGE_LOSS)
    return [round(rows * _COUNT), round(rows * accuracy * _COUNT), round(rows * loss * _COUNT)]


def read_scores(sums: Sequence[int]) -> tuple[float, float, float | None]:
    """Return (rows, right rows, sum of losses) over all sites; None for losses that did not ride."""
    return sums[0] / _COUNT, sums[1] / _COUNT, sums[2] / _COUNT if len(sums) > 2 else None


def _number(value: object, otherwise: float) -> float:
    usable = isinstance(value, int | float) and math.isfinite(value)
    return min(max(float(value), 0.0), 2.0**32) if usable else otherwise  # type: ignore[arg-type]
