"""Normalisation of one record's features by that record's own mean and variance: no other row is seen, nothing is charged."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

_FLOOR: Final = 1e-5  # added to the variance: a group that is constant becomes zero, not noise blown up
_ROWS: Final = 1024  # rows worked on at once, so that temporaries stay small beside the features


def normalise_groups(features: NDArray[np.float32], groups: int) -> None:
    """Give each group of channels of each record mean 0 and variance 1, in place.

    Args:
        features: Shape (n, channels, height, width), contiguous.
        groups: Into how many runs of neighbouring channels to divide; a divisor of `channels`.

    Guarantees:
        Row i afterwards is a function of row i before, whatever the other rows.

    Source:
        Wu and He (2018), Group normalization, equation (1), without a learned scale; 27 groups of the 81 scattering
        channels as in Tramer and Boneh (2021), Differentially private learning needs better features, section 2.3.
    """
    size = features[0].size if len(features) else groups
    grouped = features.reshape(len(features), groups, size // groups)  # a view, as the array is contiguous
    for start in range(0, len(grouped), _ROWS):
        part = grouped[start : start + _ROWS]
        part -= part.mean(axis=2, keepdims=True, dtype=np.float64).astype(np.float32)
        part /= np.sqrt(np.mean(part * part, axis=2, keepdims=True) + np.float32(_FLOOR))
