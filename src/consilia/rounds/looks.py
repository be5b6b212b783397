"""Models as a process has looked at them: each once, however many simulated sites it is sent to."""

import math
import secrets
import threading
from collections.abc import Sequence
from weakref import WeakValueDictionary

import numpy as np

from consilia.core.update import Vector
from consilia.learning.architecture import Hidden
from consilia.rounds.imprint import LEAST_COLUMNS, division

BINS = 4  # that honest training was seen to make at most; docs/decisions has the figures
_SHARE = 2 / 3  # of a layer's rows, and how many at least, that may share directions two by two
_LEAST_ROWS = 8


def length(vector: Vector) -> float:
    """Return the l2 norm of a vector to a part in 10^5; of one that float32 cannot square, exactly."""
    with np.errstate(over="ignore"):
        found = math.sqrt(float(np.dot(vector, vector)))
    return found if 0 < found < math.inf else float(np.linalg.norm(vector.astype(np.float64)))


class Look:
    """One model.

    Attributes:
        key: Its digest.
        model: Shape (d,).
        length: Its l2 norm.
        fault: What is wrong with its hidden layers; None if nothing is.
    """

    def __init__(self, key: str, model: Vector, fault: str | None) -> None:
        self.key, self.model, self.fault = key, model, fault
        self.length = length(model)
        self._distances: tuple[str, float] = (key, 0.0)

    def distance(self, other: "Look") -> float:
        """Return how far another model is from this one; the last answer is known again."""
        known, distance = self._distances
        if known != other.key:
            with np.errstate(over="ignore"):  # what overflows is far
                distance = length(self.model - other.model)
            self._distances = other.key, distance
        return distance


class Looks:
    """Looks at models; those in use are known again by their digest.

    Args:
        initial: The model that a run begins with, shape (d,).
        hidden: Its hidden layers.
    """

    def __init__(self, initial: Vector, hidden: Sequence[Hidden]) -> None:
        self._draw = np.random.default_rng(secrets.randbits(128))
        self._lock = threading.Lock()
        self._known: WeakValueDictionary[str, Look] = WeakValueDictionary()
        self._layers = [layer for layer in hidden if layer.columns >= LEAST_COLUMNS]
        # Narrow layers are divided by chance, some factories make rows alike: more than twice the beginning is no chance.
        first = [division(layer, initial, self._draw) for layer in self._layers]
        self._bins = [max(BINS, 2 * found.bins) for found in first]
        self._rows = [max(_LEAST_ROWS, _SHARE * found.of, 2 * found.rows) for found in first]
        self.initial = Look("initial", initial, None)

    def at(self, model: Vector, digest: str) -> Look:
        """Return the look at a model, shape (d,), of this digest."""
        with self._lock:
            look = self._known.get(digest)
            if look is None:
                look = self._known[digest] = Look(digest, model, self._fault(model))
            return look

    def _fault(self, model: Vector) -> str | None:
        for layer, bins, rows in zip(self._layers, self._bins, self._rows, strict=True):
            found = division(layer, model, self._draw)
            if found.bins > bins:
                return f"{layer.name} that divides one direction into {found.bins} parts, where {bins} may come of training"
            if found.rows > rows:
                return f"{layer.name} of which {found.rows} of {found.of} rows share directions at different thresholds"
        return None
