"""What objective perturbation costs: epsilon from noise and curvature, and the noise that a given budget needs.

One convention throughout: the objective is a *sum* over rows, without any number of rows in it,

    J(w) = sum_i log(1 + exp(-y_i x_i.w)) + mu/2 |w|^2 + linear terms + b.w,   y_i in {-1, +1}, |x_i| <= s,

and b has density proportional to exp(-|b| / theta), or is Gaussian of standard deviation sigma = z s. The form with a
*mean* loss, ridge Lambda and b/n is the same with mu = n Lambda; its n must then be public, and does not change where a
row is added. Letters: theta = `noise_scale`, z = `multiplier`, mu = `curvature`, s = `row_bound`. Proofs:
docs/guarantees-stacking.md, section 2.
"""

import math

from consilia.core.errors import PlanError
from consilia.dp.gaussian import exact_epsilon

_DOWN = 1.0 - 1e-12  # what rounding may add to the formula


def epsilon_of(noise_scale: float, curvature: float, row_bound: float) -> float:
    """Return the epsilon of the exact minimiser of J, under adding or removing one row.

    Guarantees:
        The minimiser is epsilon-differentially private (delta = 0), add-remove, if |x_i| <= s for every row, the ridge
        terms add up to a curvature of at least mu, and b is drawn as above.

    Source:
        Chaudhuri, Monteleoni and Sarwate (2011), Differentially private empirical risk minimization, theorem 9, proved for
        replace-one and a mean. The maximum over p, and add-remove: docs/guarantees-stacking.md, theorem 1.
    """
    slope, bend = row_bound / noise_scale, row_bound**2 / curvature
    # A row whose loss has derivative -p has curvature p (1 - p): both are never at their largest together. The loss
    # of privacy slope p + log(1 + bend p (1 - p)) is concave in p; this is where its derivative vanishes.
    root = math.sqrt(slope**2 + 4.0 + 4.0 * slope**2 / bend) if bend > 0 else math.inf
    p = min(1.0, 0.5 + (root - 2.0) / (2.0 * slope))
    return slope * p + math.log1p(bend * p * (1.0 - p))


def noise_scale(epsilon: float, curvature: float, row_bound: float) -> float:
    """Return the smallest theta, within 1e-9 of itself, at which `epsilon_of` is at most `epsilon`.

    With a curvature of s^2 / epsilon or more it is s / epsilon: the ridge then costs nothing.

    Raises:
        PlanError: If the curvature is so small that no noise is enough.
    """
    if math.log1p(row_bound**2 / curvature / 4.0) >= epsilon:
        raise _too_flat(row_bound**2 / (4.0 * math.expm1(epsilon)), epsilon, curvature, row_bound)
    low, high = 0.0, epsilon  # of s / theta
    if epsilon_of(row_bound / high, curvature, row_bound) * _DOWN <= epsilon:
        return row_bound / epsilon
    while high - low > 1e-10 * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if epsilon_of(row_bound / middle, curvature, row_bound) <= epsilon else (low, middle)
    return row_bound / (low * _DOWN)


def gaussian_multiplier(epsilon: float, delta: float, curvature: float, row_bound: float) -> float:
    """Return the smallest noise multiplier z = sigma / s, within 1e-7 of itself, that meets (epsilon, delta).

    Guarantees:
        With Gaussian b the minimiser of J is (epsilon, delta)-differentially private, add-remove, if the curvature is at
        least s^2 / epsilon: then it costs at this epsilon what a Gaussian mechanism of multiplier z costs.

    Raises:
        PlanError: If the curvature is smaller.

    Source:
        docs/guarantees-stacking.md, theorem 2; after Kifer, Smith and Thakurta (2012), Private convex empirical risk
        minimization, and Redberg, Koskela and Wang (2023), Improving the privacy and practicality of objective perturbation.
    """
    if curvature < row_bound**2 / epsilon:
        raise _too_flat(row_bound**2 / epsilon, epsilon, curvature, row_bound)
    low, high = 1e-6, 1.0
    while exact_epsilon(1.0 / high, delta) > epsilon:
        low, high = high, 2.0 * high
    while high - low > 1e-7 * high:
        middle = (low + high) / 2.0
        low, high = (low, middle) if exact_epsilon(1.0 / middle, delta) <= epsilon else (middle, high)
    return high


def _too_flat(least: float, epsilon: float, curvature: float, row_bound: float) -> PlanError:
    return PlanError.of(
        "objective perturbation", needs=f"a ridge above {least:.3g} at epsilon {epsilon:g}", got=f"{curvature:g}",
        hint=f"Raise it; {row_bound**2 / epsilon:.3g} or more is free",
    )  # fmt: skip
