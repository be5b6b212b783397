"""Models that are built to copy records: hidden layers whose outputs share a direction and differ in their thresholds.

A layer of k rows a_i v with biases b_i turns the scalar <v, x> into k bins: differences of neighbouring rows' gradients are
then sums over the records of one bin, single records where bins are many, also in a sum over sites.

Source:
    Fowl et al. (2022), Robbing the Fed: directly obtaining private data in federated learning with modified models, section 4.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilia.core.update import Vector
from consilia.learning.architecture import Hidden

SPREAD = 10.0  # thresholds of two rows are apart where they differ by so many times the angle between the rows
LEAST_COLUMNS = 8  # rows of fewer inputs are parallel by chance
_ANGLE = 0.2  # radians: rows beyond it share no direction
_SKETCH = 16  # coordinates that rows are compared in first
_NEAR = 0.9  # cosine there; among rows of 16 random coordinates one pair in 10^6 comes so near
_MOST_ROWS = 2048  # rows of one layer that are looked at
_EVEN = 1e-6  # rows of lengths further apart are compared by their directions alone
_ROUNDED = 1e-6  # thresholds of rows that are the same but for rounding differ by less


@dataclass(frozen=True)
class Division:
    """How a layer's rows divide directions that they share.

    Attributes:
        bins: Into how many parts the direction is divided that most rows share so.
        rows: Rows that share a direction with another one, at another threshold.
        of: Rows that were looked at.
    """

    bins: int
    rows: int
    of: int


def division(layer: Hidden, model: Vector, draw: np.random.Generator) -> Division:
    """Return how a layer divides directions.

    Rows count as parallel whatever their signs and lengths; rows of zeros see no record and count for nothing. Two of them lie
    in different bins if their thresholds b / |row| are further apart than `SPREAD` times their angle: random deviations of that
    angle would blur a finer division for inputs of unit size. So bins are counted at the resolution that the rows leave.

    Args:
        layer: Which.
        model: The whole model, shape (d,).
        draw: Which random directions rows are compared in first: the other end must not know them.
    """
    weights: NDArray[np.floating] = model[layer.start : layer.start + layer.rows * layer.columns].reshape(
        layer.rows, layer.columns
    )
    biases: NDArray[np.floating] = model[layer.bias : layer.bias + layer.rows]
    if layer.rows > _MOST_ROWS:
        chosen = np.sort(draw.choice(layer.rows, _MOST_ROWS, replace=False))
        weights, biases = weights[chosen], biases[chosen]
    directions = draw.standard_normal((layer.columns, _SKETCH)).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        sketch = weights @ directions
        lengths = np.linalg.norm(sketch, axis=1)
    if not lengths.min(initial=np.inf) > _EVEN * lengths.max(
        initial=0.0
    ):  # rows of zeros, of other orders, or overflown
        # What a row sees does not depend on its length, be it 1e-30 of the others'.
        peaks = np.maximum(weights.max(axis=1), -weights.min(axis=1))
        live = peaks > 0
        peaks = peaks[live].astype(np.float64)
        weights, biases = weights[live] / peaks[:, None], biases[live] / peaks
        sketch = (weights @ directions).astype(np.float32)
        lengths = np.linalg.norm(sketch, axis=1)
    sketch /= lengths[:, None]
    near = np.abs(sketch @ sketch.T) > _NEAR
    if np.count_nonzero(near) == len(near):  # each row is near itself
        return Division(0, 0, len(weights))
    paired = near.sum(axis=1) > 1
    rows, thresholds = _normal(weights[paired], biases[paired])
    counts = _apart(rows, thresholds).sum(axis=1)
    if not counts.any():
        return Division(0, 0, len(weights))
    return Division(_bins(rows, thresholds, int(counts.argmax())), int(np.count_nonzero(counts)), len(weights))


def _normal(
    weights: NDArray[np.floating], biases: NDArray[np.floating]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return rows of length 1, shape (m, columns), and their thresholds, shape (m,)."""
    rows = weights.astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1)
    return rows / lengths[:, None], biases / lengths


def _apart(rows: NDArray[np.float64], thresholds: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which pairs of rows share a direction at thresholds that differ, shape (m, m)."""
    cosines = rows @ rows.T
    angles = np.sqrt(np.maximum(2 - 2 * np.abs(cosines), 0))
    differ = np.abs(thresholds[:, None] - np.sign(cosines) * thresholds)
    apart: NDArray[np.bool_] = (angles < _ANGLE) & (differ > SPREAD * angles + _ROUNDED)
    return apart


def _bins(rows: NDArray[np.float64], thresholds: NDArray[np.float64], centre: int) -> int:
    """Return how many bins the rows parallel to one of them make, each next one apart from the last."""
    signs = np.sign(rows @ rows[centre])
    kept = np.linalg.norm(rows - signs[:, None] * rows[centre], axis=1) < _ANGLE
    rows, thresholds = rows[kept] * signs[kept, None], thresholds[kept] * signs[kept]
    order = np.argsort(thresholds)
    count, last = 1, order[0]
    for place in order[1:]:
        if thresholds[place] - thresholds[last] > SPREAD * float(np.linalg.norm(rows[place] - rows[last])) + _ROUNDED:
            count, last = count + 1, place
    return count
