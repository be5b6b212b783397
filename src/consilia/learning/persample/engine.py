"""What every way of clipping per example offers."""

from typing import Protocol

import torch
from torch import Tensor


class PerExample(Protocol):
    """Clips each example's gradient to a norm and adds up.

    Guarantees:
        Each example adds a vector of l2 norm at most the clip norm, whatever it holds: one whose gradient is not
        finite adds zero. The additions round in the model's precision, by an amount that grows with the batch.
    """

    def clipped_sum(self, features: Tensor, labels: Tensor, clip_norm: float) -> Tensor:
        """Write the sum to `model.grad` and return that, shape (p,), not a copy; b may be 0."""
        ...


def clip_factors(norms: Tensor, clip_norm: float) -> Tensor:
    """Return min(1, C / norm) per example, shape (b,); a norm of zero gives 1.

    Eight units of the last place below the bound absorb the rounding of the norm and of the product (2^-20 in float32).
    """
    bound = clip_norm * (1.0 - 8.0 * torch.finfo(norms.dtype).eps)
    return (bound / norms).clamp_(max=1.0)
