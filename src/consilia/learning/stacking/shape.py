"""What a stack is made of: which columns each low-level model reads, and where its weights lie in the vector."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consilia.core.errors import PlanError, Problem

Vector64 = NDArray[np.float64]
Parts = Literal["one", "samples", "features"]


@dataclass(frozen=True)
class StackShape:
    """The public shape of a stack for two classes.

    Attributes:
        parts: one: a single model on all columns, without a high level. samples: low-level models on all columns, each of
            its own rows (PST-S). features: each on its own columns (PST-F).
        width: Number of columns.
        blocks: Columns of each low-level model.

    Raises:
        PlanError: If columns of a feature split overlap, are left out or do not exist, or a model would have none.

    Source:
        Yao et al. (2019), Privacy-preserving stacking, section 4 (PST-S, PST-F); the formulas here are our own.
    """

    parts: Parts
    width: int
    blocks: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        every = list(range(self.width))
        if self.parts == "features":
            fits = sorted(column for block in self.blocks for column in block) == every and len(self.blocks) > 1
        else:
            fits = all(list(block) == every for block in self.blocks)
            fits = fits and (len(self.blocks) == 1 if self.parts == "one" else len(self.blocks) > 1)
        if not fits or not every or not all(self.blocks):
            got = f"{len(self.blocks)} of them for {self.width} columns"
            raise PlanError([Problem("a stack", f"blocks that suit parts = {self.parts!r}", got,
                                     "features: 2 or more disjoint blocks that hold every column once")])  # fmt: skip

    @property
    def high_size(self) -> int:
        """Number of high-level weights: one a block and a constant; 0 without a high level."""
        return 0 if self.parts == "one" else len(self.blocks) + 1

    @property
    def size(self) -> int:
        """Number of all weights, P."""
        return sum(len(block) + 1 for block in self.blocks) + self.high_size

    @cached_property
    def places(self) -> tuple[slice, ...]:
        """Where each low-level model's weights lie (the constant's last), then the high level's."""
        sizes = [len(block) + 1 for block in self.blocks] + [self.high_size] * bool(self.high_size)
        ends = np.cumsum(sizes).tolist()
        return tuple(slice(end - size, end) for size, end in zip(sizes, ends, strict=True))


def one_model(width: int) -> StackShape:
    """Return the shape of a single private logistic regression."""
    return StackShape("one", width, (tuple(range(width)),))


def sample_parts(width: int, count: int) -> StackShape:
    """Return the shape of PST-S: `count` models on all columns."""
    return StackShape("samples", width, (tuple(range(width)),) * count)


def feature_blocks(width: int, count: int) -> StackShape:
    """Return the shape of PST-F: `count` runs of neighbouring columns, whose lengths differ by at most one."""
    cuts = [width * k // count for k in range(count + 1)] if count else [0]
    return StackShape("features", width, tuple(tuple(range(a, b)) for a, b in pairwise(cuts)))
