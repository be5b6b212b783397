"""From a target epsilon to the smallest noise multiplier that meets it."""

import math
from collections.abc import Callable

from consilia.core.errors import PlanError
from consilia.dp.accountant import Composition, bound, quick_bound, rdp_epsilon
from consilia.dp.event import Event

_PRECISION = 1e-4
_SMALLEST, _LARGEST = 1e-2, 1e7


def gaussian_composition(noise_multiplier: float, *, sampling_rate: float, steps: int) -> Composition:
    """Return the composition of `steps` Gaussian releases on Poisson samples, charged one by one."""
    return ((Event(noise_multiplier, sampling_rate), steps),)


def noise_multiplier(*, epsilon: float, delta: float, make: Callable[[float], Composition]) -> float:
    """Return the smallest noise multiplier, within 1e-4 of itself, whose bound is at most `epsilon`.

    Args:
        epsilon: Target, above 0.
        delta: Delta of the guarantee.
        make: Gives the composition that a multiplier leads to; more noise must never cost more.

    Returns:
        A multiplier z with `bound(make(z), delta).epsilon <= epsilon`: it errs on the safe side only (0.01 where even
        less would do).

    Raises:
        PlanError: If the target is not a positive number, or no multiplier up to 1e7 meets it by RDP.
    """
    return least_noise(
        epsilon,
        rough=lambda z: rdp_epsilon(make(z), delta),
        quick=lambda z: quick_bound(make(z), delta).epsilon,
        exact=lambda z: bound(make(z), delta).epsilon,
        what=f"epsilon {epsilon:g} at delta {delta:g}",
    )


Cost = Callable[[float], float]
"""Epsilon at a noise multiplier; it never grows with it."""


def least_noise(epsilon: float, *, rough: Cost, quick: Cost, exact: Cost, what: str) -> float:
    """Return the smallest noise multiplier, within 1e-4 of itself, whose exact cost is at most `epsilon`.

    Args:
        epsilon: Target, above 0.
        rough: A cheap cost that is never below the others; only it decides whether the target can be met.
        quick: The cost to search with.
        exact: The cost that counts; close to the quick one.
        what: The target in words, for the error.

    Raises:
        PlanError: If the target is not a positive number, or no multiplier up to 1e7 meets it by the rough cost.
    """
    if not 0 < epsilon < math.inf:
        raise PlanError.of("privacy.epsilon", needs="a number above 0", got=epsilon, hint="Usual is 1 to 10")
    # The rough multiplier is safe, and the one sought is a little smaller.
    high = _by(rough, epsilon, what)
    cost_high = quick(high)
    low, cost_low = high, cost_high
    while cost_low <= epsilon:
        if low == _SMALLEST:
            return low
        high, cost_high = low, cost_low
        low = max(_SMALLEST, low / 1.3)
        cost_low = quick(low)
    found = _narrow(low, cost_low, high, cost_high, epsilon, quick)
    step = _PRECISION / 10
    while exact(found) > epsilon:  # the finer grid may lie on the other side by a hair
        found, step = found * (1 + step), 2 * step
    return found


def _by(rough: Cost, epsilon: float, what: str) -> float:
    low, high = _SMALLEST, _LARGEST
    if rough(high) > epsilon:
        raise PlanError.of(
            "privacy.epsilon",
            needs="a target that some noise multiplier up to 1e7 meets",
            got=what,
            hint="Ask for a larger epsilon, or for fewer steps",
        )
    while high / low > 1.05:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if rough(middle) <= epsilon else (middle, high)
    return high


def _narrow(low: float, cost_low: float, high: float, cost_high: float, epsilon: float, cost: Cost) -> float:
    # Log epsilon is close to linear in log z. So interpolate, step a third of the precision to one side of the root,
    # then to the other: about five bounds, each of which may take a tenth of a second. Bisection if that stalls.
    above, rounds = True, 0
    while high / low > 1 + _PRECISION:
        share = 0.5
        if rounds < 10 and math.isfinite(cost_low) and cost_high > 0:
            share = math.log(cost_low / epsilon) / math.log(cost_low / cost_high)
        middle = low * (high / low) ** share
        if share != 0.5:
            middle *= 1 + (_PRECISION if above else -_PRECISION) / 3
        if not low < middle < high:
            middle = math.sqrt(low * high)
        cost_middle = cost(middle)
        if cost_middle <= epsilon:
            high, cost_high, above = middle, cost_middle, False
        else:
            low, cost_low, above = middle, cost_middle, True
        rounds += 1
    return high


def textbook_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """Return sqrt(2 ln(1.25 / delta)) D / epsilon, for comparison only: the calibrated noise is smaller.

    Raises:
        PlanError: If epsilon is not in (0, 1]: the bound is not proved there.

    Source:
        Dwork and Roth (2014), The algorithmic foundations of differential privacy, theorem A.1.
    """
    if not 0 < epsilon <= 1:
        raise PlanError.of("the textbook bound", needs="an epsilon in (0, 1]", got=epsilon,
                           hint="Calibrate with the accountant instead")  # fmt: skip
    return math.sqrt(2 * math.log(1.25 / delta)) * sensitivity / epsilon
