"""Releases without sampling compose to one Gaussian, whose epsilon is known exactly."""

import math

from scipy import special


def exact_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon of a Gaussian release whose sensitivity is `mu` standard deviations.

    Composing releases with multipliers z_i gives mu = sqrt(sum of 1 / z_i^2). Rounded up by 1e-9, so that arithmetic
    never puts it below the exact value.

    Guarantees:
        The release is (epsilon, delta)-differentially private, and not (epsilon', delta) for an epsilon' smaller by
        more than 1e-9 of it.

    Source:
        Balle and Wang (2018), Improving the Gaussian mechanism for differential privacy, theorem 8.
    """
    if mu == 0 or _delta(0.0, mu) <= delta:
        return 0.0
    if not math.isfinite(mu):
        return math.inf
    low, high = 0.0, mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _delta(middle, mu) <= delta else (middle, high)
    return high * (1 + 1e-9)


def _delta(epsilon: float, mu: float) -> float:
    # Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu), through logarithms: the two terms nearly cancel for small mu.
    first = float(special.log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(special.log_ndtr(-mu / 2 - epsilon / mu))
    return -math.exp(first) * math.expm1(min(0.0, second - first))
