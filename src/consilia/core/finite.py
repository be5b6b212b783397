"""Whether every value of a long vector is finite, without another vector as long."""

import numpy as np
from numpy.typing import NDArray

_BLOCK = 1 << 14  # values at a time: 64 kB of float32


def all_finite(values: NDArray[np.floating]) -> bool:
    """Return True if no value of a vector, shape (d,), is NaN or infinite; memory does not grow with d."""
    return all(bool(np.isfinite(values[start : start + _BLOCK]).all()) for start in range(0, values.size, _BLOCK))
