"""What a stack answers: the low-level models' rows and scores, and the margin of the whole."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consilia.dp.objective import bounded
from consilia.learning.stacking.shape import StackShape, Vector64


def low_rows(features: NDArray[np.floating], block: Sequence[int], row_bound: float) -> Vector64:
    """Return one low-level model's rows, shape (n, columns + 1): its columns and a constant 1, scaled to the bound."""
    chosen = np.asarray(features, dtype=np.float64)[:, list(block)]
    return bounded(np.hstack([chosen, np.ones((len(chosen), 1))]), row_bound)


def high_rows(margins: Vector64) -> Vector64:
    """Return the high level's rows, shape (n, K + 1), of norm at most 1: a score in [-1, 1] a model, and a constant.

    Args:
        margins: The low-level models' margins, shape (n, K). The score tanh(m / 2) is 2 P(positive) - 1.
    """
    n, count = margins.shape
    return np.asarray(np.hstack([np.tanh(margins / 2.0), np.ones((n, 1))]) / np.sqrt(count + 1.0))


def low_margins(shape: StackShape, weights: Vector64, features: NDArray[np.floating], row_bound: float) -> Vector64:
    """Return each low-level model's margin, shape (n, K)."""
    columns = [
        low_rows(features, block, row_bound) @ weights[place]
        for block, place in zip(shape.blocks, shape.places, strict=False)
    ]
    return np.stack(columns, axis=1)


def margins(shape: StackShape, weights: Vector64, features: NDArray[np.floating], row_bound: float) -> Vector64:
    """Return the margin of each row, shape (n,): positive where the stack says the positive class.

    Args:
        shape: The stack's shape.
        weights: Shape (P,).
        features: Shape (n, width).
        row_bound: The bound it was trained with.
    """
    low = low_margins(shape, weights, features, row_bound)
    if not shape.high_size:
        return np.asarray(low[:, 0])
    return np.asarray(high_rows(low) @ weights[shape.places[-1]])
