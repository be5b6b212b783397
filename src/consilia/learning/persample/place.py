"""Where the rows of a batch are in what a layer is given: found by trial, checked at every step."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from consilia.learning.persample.tracked import Untraceable


@dataclass(frozen=True)
class Place:
    """The dimension that counts rows.

    Attributes:
        shape: Of the input for one row; the rows' dimension stands as `positions`.
        dim: Which dimension holds rows * positions.
        positions: Positions of each row merged into that dimension, mostly 1.
        rows_first: Merged: whether the positions of one row stand together.
    """

    shape: tuple[int, ...]
    dim: int
    positions: int
    rows_first: bool

    def check(self, x: Tensor, rows: int) -> None:
        """Refuse an input of another shape than the trial's.

        Raises:
            Untraceable: If it differs.
        """
        if (*self.shape[: self.dim], rows * self.positions, *self.shape[self.dim + 1 :]) != x.shape:
            raise Untraceable(f"an input of shape {tuple(x.shape)}")

    def front(self, x: Tensor, rows: int) -> Tensor:
        """Return values of this layout as (rows, ...), merged positions next: (rows, positions, ...)."""
        x = x.movedim(self.dim, 0) if self.dim else x
        if self.positions == 1:
            return x
        if self.rows_first:
            return x.reshape(rows, self.positions, *x.shape[1:])
        return x.reshape(self.positions, rows, *x.shape[1:]).transpose(0, 1)

    @property
    def plain(self) -> bool:
        """True if rows are the first dimension, and nothing else is in it."""
        return self.dim == 0 and self.positions == 1


def found(few: Sequence[Tensor], more: Sequence[Tensor], rows: tuple[int, int]) -> list[Place]:
    """Return where rows are in each call's input.

    Args:
        few: What calls were given in a pass of rows[0] rows.
        more: The same in a pass of rows[1] rows that begin with those.
        rows: Two numbers of rows.

    Raises:
        Untraceable: If calls differ, or an input has no dimension, or several, that grow with the rows.
    """
    if len(few) != len(more):
        raise Untraceable("other calls with other rows")
    return [_place(a, b, rows) for a, b in zip(few, more, strict=True)]


def _place(a: Tensor, b: Tensor, rows: tuple[int, int]) -> Place:
    dims = [dim for dim, (m, n) in enumerate(zip(a.shape, b.shape, strict=False)) if m != n]
    if a.dim() != b.dim() or len(dims) != 1:
        raise Untraceable(f"rows in {len(dims)} dimensions")
    (dim,) = dims
    m, left = divmod(a.shape[dim], rows[0])
    if left or m * rows[1] != b.shape[dim]:
        raise Untraceable(f"{a.shape[dim]} entries for {rows[0]} rows")
    shape = (*a.shape[:dim], m, *a.shape[dim + 1 :])
    for rows_first in (True, False):
        place = Place(shape, dim, m, rows_first)
        same = min(rows)
        if torch.allclose(place.front(a, rows[0])[:same].double(), place.front(b, rows[1])[:same].double(), atol=1e-4):
            return place
    raise Untraceable("rows that are not in order")
