"""Which engine fits a model."""

from consilia.learning.flat import FlatModel
from consilia.learning.persample.engine import PerExample
from consilia.learning.persample.fallback import Fallback
from consilia.learning.persample.layered import LayeredChain
from consilia.learning.persample.linear import LinearChain


def choose(model: FlatModel, rank: int) -> PerExample:
    """Return the fastest engine that is exact for this model.

    Args:
        model: The model.
        rank: Number of dimensions of a batch of features.
    """
    return LinearChain.of(model, rank) or LayeredChain.of(model, rank) or Fallback.of(model)
