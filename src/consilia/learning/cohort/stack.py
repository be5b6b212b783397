"""The parameters of many sites side by side."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from consilia.learning.flat import FlatModel

Matrix = NDArray[np.float32]


class Stack:
    """S copies of a model's parameters: one flat buffer in which each tensor's S copies lie together.

    So an optimizer's step is a few operations on the buffer, and each tensor's copies are one contiguous batch of matrices.

    Attributes:
        values: Each tensor's copies by name, shape (S, *shape), views into `trainable`.
        gradients: Likewise, views into `grad`.
        trainable: All of them, shape (S p,).
        grad: Their gradient, shape (S p,).
        shared: All of them travel: the same tensor as `trainable`.
        shared_grad: The same as `grad`.
    """

    def __init__(self, model: FlatModel, starts: Matrix) -> None:
        count = len(starts)
        self._sizes = [segment.size for segment in model.segments]
        self.trainable = self.shared = torch.empty(
            starts.size, dtype=model.trainable.dtype, device=model.trainable.device
        )
        self.grad = self.shared_grad = torch.zeros_like(self.trainable)
        self._values, self._gradients = self._blocks(self.trainable, count), self._blocks(self.grad, count)
        names = [segment.name for segment in model.segments]
        shapes = [(count, *segment.shape) for segment in model.segments]
        self.values = {n: b.view(s) for n, b, s in zip(names, self._values, shapes, strict=True)}
        self.gradients = {n: b.view(s) for n, b, s in zip(names, self._gradients, shapes, strict=True)}
        _spread(torch.from_numpy(starts), self._values)

    def _blocks(self, buffer: Tensor, count: int) -> list[Tensor]:
        parts = torch.split(buffer, [count * size for size in self._sizes])
        return [part.view(count, size) for part, size in zip(parts, self._sizes, strict=True)]

    def vectors(self, first: int, last: int) -> Tensor:
        """Return the vectors of sites first to last - 1, shape (last - first, p), a copy."""
        return torch.cat([block[first:last] for block in self._values], dim=1)

    def gradient_vectors(self, first: int, last: int) -> Tensor:
        """Return their gradients, shape (last - first, p), a copy."""
        return torch.cat([block[first:last] for block in self._gradients], dim=1)

    def set_gradients(self, vectors: Tensor) -> None:
        """Take over the gradients of the first sites, shape (s, p)."""
        _spread(vectors, self._gradients)

    def laid_out(self, vectors: Tensor) -> Tensor:
        """Return vectors of all sites, shape (S, p), in the buffer's own order, shape (S p,)."""
        return torch.cat([part.flatten() for part in torch.split(vectors.to(self.grad), self._sizes, dim=1)])


def _spread(vectors: Tensor, blocks: list[Tensor]) -> None:
    parts = torch.split(vectors, [block.shape[1] for block in blocks], dim=1)
    for block, part in zip(blocks, parts, strict=True):
        block[: len(part)].copy_(part)
