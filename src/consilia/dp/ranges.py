"""The numbers that Consilia accounts for: one place, which the command line, plans and accountants share.

They are far wider than anything useful. Beyond them arithmetic in doubles says nothing: 1e-300 squared is zero.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """A closed range of numbers."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        """Say whether a number lies in it; NaN lies in none."""
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"from {self.low:g} to {self.high:g}"


NOISE_MULTIPLIER = Range(1e-3, 1e9)
SAMPLING_RATE = Range(1e-9, 1.0)
STEPS = Range(1, 1e9)
DELTA = Range(1e-300, 1.0)
EPSILON = Range(1e-6, 1e6)
CLIP_NORM = Range(1e-6, 1e6)
STRENGTH = Range(0.0, 1e6)  # learning rates, penalties, the server's tau

_MOST_RELEASES = 10**18


def settled(noise_multiplier: float, sampling_rate: float) -> tuple[float, float]:
    """Return a multiplier and rate inside the ranges whose release costs at least as much as the one given.

    A plan's multiplier may be scaled by weights, so that one in range becomes one that is not. Less noise and a larger
    sample never cost less; a multiplier below the range counts as no noise.
    """
    if noise_multiplier < NOISE_MULTIPLIER.low:
        noise_multiplier = 0.0
    elif not math.isinf(noise_multiplier):
        noise_multiplier = min(noise_multiplier, NOISE_MULTIPLIER.high)
    return float(noise_multiplier), float(max(sampling_rate, SAMPLING_RATE.low) if sampling_rate > 0 else 0.0)


def countable(releases: int) -> bool:
    """Say whether so many releases can be summed up in doubles."""
    return releases <= _MOST_RELEASES
