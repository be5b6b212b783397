"""CPU and wall time of a block, and how a sample of ratios is summed up."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Moment:
    """CPU seconds of all threads of this process, kernel included, and wall seconds."""

    cpu: float
    wall: float

    @classmethod
    def now(cls) -> "Moment":
        """Read both clocks."""
        return cls(time.process_time(), time.perf_counter())

    def __sub__(self, earlier: "Moment") -> "Moment":
        return Moment(self.cpu - earlier.cpu, self.wall - earlier.wall)


def quartiles(values: Sequence[float]) -> dict[str, float]:
    """Return the median and the quartiles, to four digits."""
    low, middle, high = np.quantile(np.asarray(values), [0.25, 0.5, 0.75])
    return {"median": digits(middle), "lower": digits(low), "upper": digits(high)}


def digits(value: float) -> float:
    """Return a number with four significant digits: more would be noise."""
    return float(f"{value:.4g}")
