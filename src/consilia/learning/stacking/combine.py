"""What becomes of the sites' stacks: computed from releases alone, so it costs nothing."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from consilia.learning.stacking.predict import margins
from consilia.learning.stacking.shape import StackShape, Vector64

Answer = Callable[[Vector64 | None], Vector64]
"""A site that answers once: a source (or None) -> its private stack."""


def average_weights(stacks: Sequence[Vector64], weights: Sequence[float]) -> Vector64:
    """Return one stack, shape (P,): the mean of the sites' by public weights."""
    return np.average(np.stack(stacks), axis=0, weights=weights)


def average_votes(
    shape: StackShape,
    stacks: Sequence[Vector64],
    weights: Sequence[float],
    features: NDArray[np.floating],
    row_bound: float,
) -> Vector64:
    """Return for each row the mean over sites of 2 P(positive) - 1, by public weights; shape (n,), in [-1, 1]."""
    votes = np.stack([np.tanh(margins(shape, stack, features, row_bound) / 2.0) for stack in stacks])
    return np.average(votes, axis=0, weights=weights)


def transfer_along(sites: Sequence[Answer]) -> Vector64:
    """Return the last of a chain of sites' stacks, each trained with the one before as its source (PST-H).

    The order must be public: chosen without looking at anybody's rows.
    """
    source: Vector64 | None = None
    for answer in sites:
        source = answer(source)
    if source is None:
        raise ValueError("A chain needs at least one site; got none. Pass the sites in a public order.")
    return source
