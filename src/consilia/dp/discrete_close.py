"""How close a sum of discrete Gaussian shares is to a Gaussian rounded to integers, and what counting it as one costs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from consilia.dp.discrete_event import DiscreteGaussianEvent
from consilia.dp.discrete_rdp import tau

_TAIL = 30.0  # e^-30 of delta pays for noise so large that the two laws part
_LOST = 1e-9  # of the result, for arithmetic


@dataclass(frozen=True)
class Close:
    """What it costs to count integer noise as Gaussian noise of the same multiplier.

    Attributes:
        epsilon: What is added.
        share: What part of delta is left for the Gaussian.
    """

    epsilon: float
    share: float


def close(releases: Sequence[tuple[DiscreteGaussianEvent, int]], delta: float, about: float) -> Close | None:
    """Return the cost for these releases together, or None where it is not worth it.

    Args:
        releases: Events and how often each is charged.
        delta: Delta of the guarantee; the cost holds for every larger one too.
        about: An epsilon that the Gaussians are known not to pass at that delta (the bound by Renyi divergence).

    Guarantees:
        If releases of Gaussian noise with multipliers `ratio` in place of these are, with whatever else is charged,
        (e, share x delta)-differentially private for an e of at most `about`, then these releases are, with the rest,
        (e + epsilon, delta)-differentially private. Proof: docs/guarantees-distributed.md, section 3a.
    """
    moving = [(event, times * event.steps) for event, times in releases if event.l2 > 0 and times * event.steps > 0]
    if not moving:
        return Close(0.0, 1.0)
    if not math.isfinite(about):
        return None
    more = sum(count * event.dim * below(event) for event, count in moving) * (1 + _LOST)
    share = math.exp(-more) - math.exp(-_TAIL)
    if share < 0.5:
        return None
    tail = math.log(len(moving)) + _TAIL + more + about - math.log(delta)
    less = sum(above(event, count * event.dim, tail) for event, count in moving) * (1 + _LOST)
    return Close(more + less, share * (1 - _LOST))


def _variance(event: DiscreteGaussianEvent) -> float:
    return float(event.shares) * float(event.share_variance)


def below(event: DiscreteGaussianEvent) -> float:
    """Return how far log(mass of the sum) is above log(mass of the rounded Gaussian), at most, on a coordinate."""
    return tau(event.share_variance, event.shares) / 2 - math.log1p(-1 / (24 * _variance(event)))


def above(event: DiscreteGaussianEvent, numbers: int, tail: float) -> float:
    """Return how far it is below, at most, on so many coordinates together, but for a chance of exp(-tail)."""
    s = _variance(event)
    edge = tau(event.share_variance, event.shares) / 2 + 2.001 * math.exp(-2 * math.pi**2 * s)
    largest = numbers + 2 * math.sqrt(numbers * tail) + 2 * tail  # of a chi-square with `numbers` degrees of freedom
    return numbers * edge + largest / (12 * s) + numbers / (48 * s**2)
