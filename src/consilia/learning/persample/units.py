"""Which rows of a batch are protected together: a patient's records, or the views of one record."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Units:
    """Rows of one unit are contiguous; the unit's gradient is the mean of its rows' gradients.

    Attributes:
        of: The unit of each row, shape (rows,), int64, non-decreasing, 0 .. count - 1; each unit has a row.
        count: How many units.
    """

    of: Tensor
    count: int

    @classmethod
    def contiguous(cls, names: Tensor) -> "Units":
        """Return the units of rows named by numbers, shape (rows,); equal neighbours are one unit."""
        found, of = torch.unique_consecutive(names, return_inverse=True)
        return cls(of, len(found))

    @classmethod
    def single(cls, rows: int, device: torch.device) -> "Units":
        """Return units of one row each."""
        return cls(torch.arange(rows, device=device), rows)

    def repeated(self, times: int) -> "Units":
        """Return the units of a batch in which each row stands `times` times, one after the other."""
        return Units(self.of.repeat_interleave(times), self.count)

    @cached_property
    def sizes(self) -> Tensor:
        """Rows of each unit, shape (count,), int64."""
        return torch.bincount(self.of, minlength=self.count)

    @cached_property
    def most(self) -> int:
        """Rows of the largest unit; 0 in an empty batch."""
        return int(self.sizes.max()) if self.count else 0

    @cached_property
    def even(self) -> bool:
        """True if all units have equally many rows."""
        return len(self.of) == self.count * self.most

    @cached_property
    def weights(self) -> Tensor:
        """One over the size of each row's unit, shape (rows,), float64: a unit's weighted sum is its mean."""
        return (1.0 / self.sizes.double())[self.of]

    @cached_property
    def _places(self) -> Tensor:
        starts = self.sizes.cumsum(0) - self.sizes
        return self.of * self.most + torch.arange(len(self.of), device=self.of.device) - starts[self.of]

    def padded(self, x: Tensor) -> Tensor:
        """Return values per row, shape (rows, ...), as (count, most, ...); what a smaller unit lacks is zero."""
        if self.even:
            return x.reshape(self.count, self.most, *x.shape[1:])
        out = x.new_zeros(self.count * self.most, *x.shape[1:])
        out[self._places] = x
        return out.view(self.count, self.most, *x.shape[1:])

    def summed(self, x: Tensor) -> Tensor:
        """Return the sums of each unit's rows, shape (count, ...)."""
        if self.even:
            return x if self.most == 1 else self.padded(x).sum(1)
        return x.new_zeros(self.count, *x.shape[1:]).index_add_(0, self.of, x)


def split(rows: int, units: Units | None, most: int) -> Iterator[tuple[slice, Units | None]]:
    """Cut a batch into chunks of at most `most` rows; a unit is never cut, so a larger one is a chunk of its own.

    Args:
        rows: Rows of the batch; an empty batch has no chunk.
        units: Which rows belong together; None: each row is a unit.
        most: Rows a chunk.
    """
    if rows <= most:
        if rows:
            yield slice(0, rows), units
        return
    if units is None:
        yield from ((slice(begin, min(begin + most, rows)), None) for begin in range(0, rows, most))
        return
    ends = units.sizes.cumsum(0).tolist()
    begin = first = 0
    for unit in range(units.count):
        if unit + 1 == units.count or ends[unit + 1] - begin > most:
            yield slice(begin, ends[unit]), Units(units.of[begin : ends[unit]] - first, unit + 1 - first)
            begin, first = ends[unit], unit + 1
