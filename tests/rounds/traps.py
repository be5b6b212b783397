"""Models that are built to copy records, as attacks build them."""

import numpy as np
from numpy.typing import NDArray

from consilia.core.update import Vector
from consilia.learning.architecture import Hidden


def imprint(
    model: Vector, layer: Hidden, *, share: float = 1.0, noise: float = 0.0, directions: int = 1, spread: float = 1.0,
    lengths: tuple[float, float] = (0.5, 2.0), seed: int = 0,
) -> Vector:  # fmt: skip
    """Return the model with an imprint in one layer.

    Args:
        model: To put it in, shape (d,).
        layer: Which.
        share: Of its rows.
        noise: Length of what is added to each row at random, over the row's.
        directions: That the rows share out.
        spread: Of the inputs along a direction: thresholds are quantiles of a Gaussian.
        lengths: Between which each row's length is drawn; its sign is too.
        seed: Of all of it.

    Source:
        Fowl et al. (2022), Robbing the Fed, section 4; signs, lengths, noise and directions are disguises.
    """
    draw, found = np.random.default_rng(seed), np.array(model, np.float32)
    many = int(share * layer.rows)
    shared = _unit(draw.standard_normal((directions, layer.columns)))[np.arange(many) % directions]
    rows = shared + noise * _unit(draw.standard_normal((many, layer.columns)))
    scale = draw.uniform(*lengths, many) * draw.choice([-1.0, 1.0], many)
    thresholds = np.quantile(draw.standard_normal(4000) * spread, np.linspace(0.002, 0.998, many))
    start = layer.start
    found[start : start + many * layer.columns] = (scale[:, None] * rows).ravel()
    found[layer.bias : layer.bias + many] = scale * draw.permutation(thresholds)
    return found


def trap_weights(model: Vector, layer: Hidden, *, factor: float = 0.97, seed: int = 0) -> Vector:
    """Return the model with rows of which one half outweighs the other, so that few records pass any of them.

    Source:
        Boenisch et al. (2023), When the curious abandon honesty, section 5.2.
    """
    draw, found = np.random.default_rng(seed), np.array(model, np.float32)
    rows = np.abs(draw.standard_normal((layer.rows, layer.columns)))
    negative = draw.permuted(np.tile(np.arange(layer.columns) % 2 == 0, (layer.rows, 1)), axis=1)
    rows = np.where(negative, -rows, factor * rows)
    found[layer.start : layer.start + rows.size] = rows.ravel()
    return found


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    unit: NDArray[np.float64] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit
