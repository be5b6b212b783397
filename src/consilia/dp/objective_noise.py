"""Noise with density proportional to exp(-|b| / scale) on R^d: what a bounded move of a vector costs in pure epsilon."""

import numpy as np
from numpy.typing import NDArray

from consilia.core.randomness import SecretRng


def radial_noise(size: int, scale: float, rng: SecretRng) -> NDArray[np.float64]:
    """Return one draw, shape (size,): a uniform direction times a norm from Gamma(size, scale).

    In one dimension it is Laplace noise. The norm is a sum of `size` exponentials, each the logarithm of a uniform of 53
    bits, so it ends at 36.7 size scale; the direction is that of a normal vector.

    Guarantees:
        A vector that a neighbour moves by at most D in l2, plus this noise, is (D / scale)-differentially private, since
        |b| and |b + v| differ by at most |v|. Up to floating point: docs/guarantees-stacking.md, section 6.

    Source:
        Chaudhuri, Monteleoni and Sarwate (2011), Differentially private empirical risk minimization, algorithm 1.
    """
    direction = rng.normal(size)
    while not direction.any():  # a draw of zeros (chance 2^-53 at size 1) has no direction
        direction = rng.normal(size)
    radius = -float(np.log1p(-rng.uniform(size)).sum())
    return np.asarray(direction * (scale * radius / np.linalg.norm(direction)))
