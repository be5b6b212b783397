"""Which engine fits a model."""

from consilia.learning.flat import FlatModel
from consilia.learning.persample.engine import PerExample
from consilia.learning.persample.linear import LinearChain
from consilia.learning.persample.traced import Traced


def choose(model: FlatModel, rank: int, *, timed: bool) -> PerExample:
    """Return the fastest engine that is exact for this model.

    Args:
        model: The model.
        rank: Number of dimensions of a batch of features.
        timed: Whether the clock may choose among kernels; without it, sums come out bit for bit alike in every process.
    """
    return LinearChain.of(model, rank) or Traced(model, timed=timed)
