"""What every way of clipping per example offers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from consilia.learning.flat import FlatModel
from consilia.learning.persample.clipping import Clipping
from consilia.learning.persample.units import Units


@dataclass(frozen=True)
class Clipped:
    """A sum of clipped gradients.

    Attributes:
        total: The sum, shape (p,): the model's own gradient, not a copy.
        norms: Norms of the units before clipping, in parts; those that are not finite are left out.
        bound: C.
    """

    total: Tensor
    norms: Sequence[Tensor]
    bound: float

    @property
    def within(self) -> int:
        """How many finite units had a norm of at most the bound. It depends on the rows: release it with noise only."""
        return sum(int((norms <= self.bound).sum()) for norms in self.norms)


class PerExample(Protocol):
    """Clips each unit's gradient to a norm and adds up.

    Guarantees:
        Each unit adds a vector of l2 norm at most the clip norm, whatever it holds: one whose gradient is not
        finite adds zero. The additions round in the model's precision, by an amount that grows with the batch.
    """

    def clipped_sum(self, features: Tensor, labels: Tensor, clipping: Clipping, units: Units | None = None) -> Clipped:
        """Write the sum to `model.grad`; b may be 0.

        Args:
            features: Shape (b, *input).
            labels: Shape (b,), int64.
            clipping: The bound on each unit.
            units: Which rows are one unit: its gradient is the mean of theirs. None: each row.
        """
        ...


def owner(name: str) -> str:
    """Return the module's name of a parameter's name."""
    return name.rpartition(".")[0]


def layer_count(model: FlatModel) -> int:
    """Return how many modules own a trainable parameter: the layers of per-layer clipping."""
    return len({owner(name) for name in model.parameters})
