"""A layer's share of every unit's gradient, in the two forms there are: outer products, and gradients written out."""

from dataclasses import dataclass

import torch
from torch import Tensor

from consilia.learning.persample.chain import row_squares

_HELD = 1 << 22  # elements of gradients written out for one layer: above, only norms are taken


class Formed:
    """Gradients written out once: they serve the norms and are added up by one product with the factors."""

    def __init__(self, layer: str, into: Tensor, each: Tensor) -> None:
        """Take each unit's gradient, shape (units, *into.shape), and where the sum goes."""
        order = sorted(range(1, each.dim()), key=each.stride, reverse=True)  # as they lie in memory: no copy is made
        self.layer, self.into = layer, into.permute([dim - 1 for dim in order])
        self.each = each.permute(0, *order).flatten(1)

    def squares(self) -> Tensor:
        """Return squared norms, shape (units,)."""
        return row_squares(self.each)

    def add(self, factors: Tensor, fit: Tensor | None) -> None:
        """Add factors times gradients."""
        self.into.add_((factors @ (self.each if fit is None else self.each[fit])).view_as(self.into))


@dataclass(frozen=True)
class Outer:
    """A Linear layer: a unit's gradient is the sum over its positions of b a^T, and its bias gradient that of b.

    One position a unit: the norm is |a| |b|. More: the square is the sum over pairs of positions of (a . a') (b . b'), which
    costs less than writing the gradient out where positions are few.

    Attributes:
        layer: Name of the layer.
        a: Inputs, shape (units, positions, in), or (units, in) for one position.
        b: Gradients at the outputs, shape (units, positions, out), or (units, out).
        weight: Where the weight's sum goes, shape (out, in); None: not trained.
        bias: Where the bias's sum goes, shape (out,); None: not trained.

    Guarantees:
        Norms are never understated by more than the rounding of a product: pairs may cancel, so that what rounding may take
        away is added on top.

    Source:
        Goodfellow (2015), Efficient per-example gradient computations; Li et al. (2022), Large language models can be strong
        differentially private learners, section 4 (pairs of positions).
    """

    layer: str
    a: Tensor
    b: Tensor
    weight: Tensor | None
    bias: Tensor | None

    def squares(self) -> Tensor:
        """Return squared norms, shape (units,)."""
        if self.a.dim() == 2:
            squares = row_squares(self.b)
            return squares if self.weight is None else squares * (row_squares(self.a) + (self.bias is not None))
        found = self.b.new_zeros(len(self.b))
        if self.bias is not None:
            found = found + row_squares(self.b.sum(1))
        if self.weight is not None:
            pairs = torch.bmm(self.a, self.a.mT).mul_(torch.bmm(self.b, self.b.mT)).sum((1, 2))
            sizes = torch.linalg.vector_norm(self.a, dim=2) * torch.linalg.vector_norm(self.b, dim=2)
            found = found + pairs + _slack(sizes)
        return found

    def add(self, factors: Tensor, fit: Tensor | None) -> None:
        """Add factors times gradients."""
        a, b = (self.a, self.b) if fit is None else (self.a[fit], self.b[fit])
        if a.dim() == 3:
            factors = factors.repeat_interleave(a.shape[1])
            a, b = a.flatten(0, 1), b.flatten(0, 1)
        if self.weight is not None:
            if a.shape[1] < b.shape[1]:  # the shorter one is scaled, and stands on the left: up to twice as quick
                self.weight.add_(((a * factors[:, None]).T @ b).T)
            else:
                self.weight.addmm_((b * factors[:, None]).T, a)
        if self.bias is not None:
            self.bias.addmv_(b.T, factors)


def of_linear(layer: str, a: Tensor, b: Tensor, weight: Tensor | None, bias: Tensor | None) -> "list[Outer | Formed]":
    """Return a Linear layer's share in its cheaper form.

    Args:
        layer: Name of the layer.
        a: Inputs, shape (units, positions, in).
        b: Gradients at the outputs, shape (units, positions, out).
        weight: Where the weight's sum goes, or None.
        bias: Where the bias's sum goes, or None.
    """
    units, positions, wide = a.shape
    size = wide * b.shape[2]
    if positions == 1:
        return [Outer(layer, a[:, 0], b[:, 0], weight, bias)]
    if positions * (wide + b.shape[2]) <= size or units * size > _HELD:
        return [Outer(layer, a, b, weight, bias)]
    found: list[Outer | Formed] = []
    if weight is not None:
        found.append(Formed(layer, weight, torch.bmm(b.mT, a)))
    if bias is not None:
        found.append(Formed(layer, bias, b.sum(1)))
    return found


@dataclass(frozen=True)
class LookedUp:
    """An Embedding: a unit's gradient adds each position's slope to the row that was looked up there.

    The square of its norm is the sum over pairs of positions that looked up the same row of b . b'.

    Attributes:
        layer: Name of the layer.
        into: Where the sum goes, shape (rows of the table, width).
        ids: Rows looked up, shape (units, positions), int64.
        b: Gradients at the outputs, shape (units, positions, width).

    Guarantees:
        As of `Outer`: what rounding may take away from a norm is added on top.
    """

    layer: str
    into: Tensor
    ids: Tensor
    b: Tensor

    def squares(self) -> Tensor:
        """Return squared norms, shape (units,)."""
        same = self.ids[:, :, None] == self.ids[:, None, :]
        found = torch.bmm(self.b, self.b.mT).mul_(same).sum((1, 2))
        return found + _slack(torch.linalg.vector_norm(self.b, dim=2))

    def add(self, factors: Tensor, fit: Tensor | None) -> None:
        """Add factors times gradients."""
        ids, b = (self.ids, self.b) if fit is None else (self.ids[fit], self.b[fit])
        self.into.index_add_(0, ids.flatten(), (b * factors[:, None, None]).flatten(0, 1))


def _slack(sizes: Tensor) -> Tensor:
    """Return what rounding may take from a sum over pairs of positions, given each position's size (units, positions)."""
    return sizes.sum(1).square_().mul_(16 * torch.finfo(sizes.dtype).eps)
