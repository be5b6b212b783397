"""How much each block of columns tells of the label, measured at a site and paid for."""

import numpy as np
from numpy.typing import NDArray

from consilia.core.randomness import SecretRng
from consilia.dp.objective_noise import radial_noise
from consilia.learning.stacking.predict import low_rows
from consilia.learning.stacking.shape import StackShape


def measured_importance(
    shape: StackShape,
    features: NDArray[np.floating],
    positive: NDArray[np.bool_],
    *,
    epsilon: float,
    row_bound: float,
    rng: SecretRng,
) -> tuple[float, ...]:
    """Return a number above 0 a block: half alike for all, half by the norm of its columns' noised covariance with the label.

    Guarantees:
        epsilon-differential privacy, add-remove: the pair (sum of y x, sum of x) moves by at most sqrt(2) s when one row
        of norm at most s is added, and has radial noise of scale sqrt(2) s / epsilon. The rest is computed from it.
    """
    rows = low_rows(features, range(shape.width), row_bound)
    sums = np.concatenate([np.where(positive, 1.0, -1.0) @ rows, rows.sum(axis=0)])
    sums += radial_noise(sums.size, np.sqrt(2.0) * row_bound / epsilon, rng)
    by_label, plain = np.split(sums, 2)
    mean = np.clip(by_label[-1] / max(plain[-1], 1.0), -1.0, 1.0)  # of y, by the constant column
    covariance = (by_label - mean * plain)[:-1]
    norms = np.array([np.linalg.norm(covariance[list(block)]) for block in shape.blocks])
    share = norms / norms.sum() if norms.sum() > 0 else np.full(len(norms), 1.0 / len(norms))
    return tuple(float(part) + 1.0 / len(norms) for part in share)
