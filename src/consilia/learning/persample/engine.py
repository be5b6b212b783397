"""What every way of clipping per example offers."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class ClippedSum:
    """The sum of one batch's clipped gradients.

    Attributes:
        total: Shape (p,): it is `model.grad`, not a copy.
        norms: l2 norm of each example's gradient before clipping, shape (b,). Data: stays at the site.
        rejected: Number of examples that contributed zero because their gradient is not finite.
    """

    total: Tensor
    norms: Tensor
    rejected: int


class PerExample(Protocol):
    """Clips each example's gradient to a norm and adds up.

    Guarantees:
        Adding or removing one example moves `total` by at most the clip norm in l2, up to floating-point
        rounding (relative 1e-6 in float32), whatever the example holds: one whose gradient is not finite
        contributes zero.
    """

    def clipped_sum(self, features: Tensor, labels: Tensor, clip_norm: float) -> ClippedSum:
        """Write the sum to `model.grad`; b may be 0."""
        ...


def clip_factors(norms: Tensor, clip_norm: float) -> Tensor:
    """Return min(1, C / norm) per example, shape (b,); a norm of zero gives 1."""
    return (clip_norm / norms).clamp_(max=1.0)
