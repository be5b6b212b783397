"""The port of an aggregation rule, and the weighted mean."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from consilia.core.spec import Visibility
from consilia.core.update import Vector

_BLOCK = 1 << 15  # coordinates at a time: what is in between stays in the processor's cache


@dataclass
class WeightedSum:
    """Running total: sum of weight x vector in float64, shape (d,), and the sum of weights."""

    total: NDArray[np.float64]
    weight: float = 0.0
    count: int = 0


class Rule(Protocol):
    """A monoid and a finish: how vectors become one."""

    needs: Visibility

    def zero(self, dim: int) -> WeightedSum:
        """Return the empty sum."""
        ...

    def add(self, acc: WeightedSum, vector: Vector, weight: float, factor: float = 1.0) -> None:
        """Add one site's vector, in place, for a part of its weight."""
        ...

    def finish(self, acc: WeightedSum, total: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the aggregate from the decoded total, shape (d,); it may be the total itself, changed."""
        ...


@dataclass(frozen=True)
class WeightedMean:
    """Sum of weight x vector over a denominator.

    Args:
        denominator: A fixed public number, needed wherever noise is scaled for the sum; None divides by the weights that
            arrived.

    Guarantees:
        With a fixed denominator W, changing one site's vector by at most s changes the mean by at most weight x s / W,
        whichever sites are missing.
    Source:
        McMahan et al. (2018), Learning Differentially Private Recurrent Language Models, section 2 (fixed denominator).
    """

    denominator: float | None = None
    needs: Visibility = Visibility.SUM

    def zero(self, dim: int) -> WeightedSum:
        """Return the empty sum."""
        return WeightedSum(np.zeros(dim))

    def add(self, acc: WeightedSum, vector: Vector, weight: float, factor: float = 1.0) -> None:
        """Add one site's vector, in place; in float64, so that order and scale of sites matter little.

        An update that counts for less than its weight makes the step smaller, not the others' share of it larger: the weight
        is added whole.
        """
        for start in range(0, vector.size, _BLOCK):
            part = slice(start, start + _BLOCK)
            acc.total[part] += weight * factor * vector[part].astype(np.float64)
        acc.weight += weight
        acc.count += 1

    def finish(self, acc: WeightedSum, total: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the mean, shape (d,), in place of the total; zero where no weight arrived."""
        denominator = acc.weight if self.denominator is None else self.denominator
        if denominator <= 0:
            return np.zeros_like(total)
        total /= denominator
        return total
