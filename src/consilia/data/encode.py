"""From raw columns to features, with public constants only.

Nothing here looks at the distribution of the rows: a mean, a maximum or a list of values taken from patients'
rows would be a release of its own and would differ from site to site.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

MISSING = -1  # the code of a category that is not on the public list


def scale_to_range(values: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    """Clip to the public range [low, high] and map it onto [-1, 1]; NaN (missing) becomes 0, the middle.

    Args:
        values: Shape (n,), in the column's own unit.
        low: Lower end of the range, same unit.
        high: Upper end, above `low`.
    """
    # Halved before subtracting: high - low would overflow for a range like [-1e308, 1e308].
    middle, half = high / 2 + low / 2, high / 2 - low / 2
    scaled = (np.clip(values, low, high) - middle) / half
    return np.where(np.isnan(scaled), 0.0, scaled)


def category_codes(cells: Sequence[str], positions: Mapping[str, int]) -> list[int]:
    """Return each cell's position on the public list, `MISSING` where it is not on it."""
    return [positions.get(cell, MISSING) for cell in cells]


def fill_one_hot(target: NDArray[np.float32], codes: NDArray[np.int64]) -> None:
    """Write a 1 into the column of each row's code; a missing value leaves the row at zero.

    Args:
        target: Zeros, shape (n, k); written in place.
        codes: Shape (n,), in -1..k-1.
    """
    rows = np.flatnonzero(codes != MISSING)
    target[rows, codes[rows]] = 1.0
