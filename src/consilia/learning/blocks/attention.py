"""Attention over the columns of a table."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (the name torch documents)


class ColumnTokens(nn.Module):
    """One token for each column, x_j w_j + b_j, behind one that belongs to the whole row: (b, f) to (b, f + 1, width).

    Source:
        Gorishniy et al. (2021), Revisiting deep learning models for tabular data, section 3.3.
    """

    def __init__(self, columns: int, width: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(width)
        self.weight = nn.Parameter(torch.empty(columns, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(columns + 1, width).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """Return the tokens; the row's own stands first."""
        columns = x[:, :, None] * self.weight  # (b, f, width)
        return F.pad(columns, (0, 0, 1, 0)) + self.bias


class AttentionBlock(nn.Module):
    """x + attention(norm(x)), then x + feed-forward(norm(x)); (b, tokens, width) to the same shape.

    Source:
        Vaswani et al. (2017), Attention is all you need, section 3.2; norms before each part: Xiong et al. (2020), On layer
        normalization in the transformer architecture.
    """

    def __init__(self, width: int, heads: int, act: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), act(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the tokens after each has seen all of its own row."""
        rows, tokens, width = x.shape
        parts = self.mixed(self.before(x)).view(rows, tokens, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)  # each (b, heads, tokens, width / heads)
        weights = (query @ key.transpose(2, 3) / math.sqrt(width // self.heads)).softmax(-1)
        x = x + self.out((weights @ value).transpose(1, 2).reshape(rows, tokens, width))
        y: Tensor = x + self.feed(self.between(x))
        return y


class FirstToken(nn.Module):
    """Keeps the row's own token: (b, tokens, width) to (b, width)."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the first token of each row."""
        return x[:, 0]
