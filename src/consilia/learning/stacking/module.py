"""A stack as a torch model, so that a run scores, keeps and exports it like any other."""

import torch
from torch import Tensor, nn

from consilia.learning.stacking.shape import StackShape

_TINY = 1e-30  # a row of zeros stays one


class StackModule(nn.Module):
    """The stack of a shape: one vector of weights, shape (P,); answers two logits that differ by the margin.

    Args:
        shape: The stack's public shape.
        row_bound: The bound that its low-level rows were trained with.
    """

    def __init__(self, shape: StackShape, row_bound: float) -> None:
        super().__init__()
        self.shape = shape
        self.row_bound = row_bound
        self.weights = nn.Parameter(torch.zeros(shape.size))
        for k, block in enumerate(shape.blocks):
            self.register_buffer(f"columns{k}", torch.tensor(block), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits, shape (n, 2), for features of shape (n, ...) with `width` numbers a row."""
        flat = features.flatten(1)
        ones = torch.ones_like(flat[:, :1])
        low = []
        for k, place in zip(range(len(self.shape.blocks)), self.shape.places, strict=False):
            rows = torch.cat([flat[:, getattr(self, f"columns{k}")], ones], dim=1)
            scale = torch.clamp(self.row_bound / rows.norm(dim=1).clamp_min(_TINY), max=1.0)
            low.append((rows @ self.weights[place]) * scale)
        margin = low[0]
        if self.shape.high_size:
            scores = torch.stack([*(torch.tanh(one / 2) for one in low), ones[:, 0]], dim=1)
            margin = scores @ self.weights[self.shape.places[-1]] / self.shape.high_size**0.5
        return torch.stack([-margin / 2, margin / 2], dim=1)
