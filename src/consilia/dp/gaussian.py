"""Releases without sampling compose to one Gaussian, whose epsilon is known exactly."""

import math
import sys

from scipy import special

_UNITS = 4 * sys.float_info.epsilon
_LARGEST, _SMALLEST_DELTA = 1e5, 1e-300


def exact_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon of a Gaussian release whose sensitivity is `mu` standard deviations.

    Composing releases with multipliers z_i gives mu = sqrt(sum of 1 / z_i^2). Rounded up by what arithmetic may have
    lost, so that it is never below the exact value: about 1e-9 of it, and more where mu is tiny (1e-8 at 1e-7).

    Guarantees:
        The release is (epsilon, delta)-differentially private; for mu of 1e-4 or more it is not (epsilon', delta)-private
        for an epsilon' smaller by more than 2e-9 of it.

    Source:
        Balle and Wang (2018), Improving the Gaussian mechanism for differential privacy, theorem 8.
    """
    if mu == 0 or (mu <= _LARGEST and delta >= _SMALLEST_DELTA and _delta(0.0, mu) <= delta):
        return 0.0
    if not math.isfinite(mu * mu):
        return math.inf
    # Always enough (concentrated privacy). Past these numbers it is the answer: nothing finer can be told in doubles.
    low, high = 0.0, mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))
    if mu > _LARGEST or delta < _SMALLEST_DELTA:
        return high * (1 + 1e-9)
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _delta(middle, mu) <= delta else (middle, high)
    return high * (1 + 1e-9)


def _delta(epsilon: float, mu: float) -> float:
    # Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu), never below it. Through logarithms, which nearly cancel for small mu:
    # what rounding may have taken from either of them is a few units in the last place of what they are made of.
    first = float(special.log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(special.log_ndtr(-mu / 2 - epsilon / mu))
    lost = _UNITS * (1 - first - second + 2 * epsilon)
    return -math.exp(first + lost) * math.expm1(min(0.0, second - first) - 2 * lost)
