"""Integer noise counted as Gaussian noise: the two laws side by side, and bounds against exact ones by enumeration."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import log_ndtr
from tests.dp.test_discrete_rdp import log_sum_law

from consilia.core.spec import Adjacency
from consilia.dp.accountant import bound, profile
from consilia.dp.discrete_close import above, below, close
from consilia.dp.event import DiscreteGaussianEvent, Event
from consilia.dp.gaussian import exact_epsilon

CASES = [(1, 1), (1, 2), (1, 5), (2, 3), (16, 2), (100, 3)]


def log_rounded(variance: float, top: int) -> NDArray[np.float64]:
    """Return log masses of a Gaussian rounded to the nearest integer, on -top..top."""
    at, deviation = -np.abs(np.arange(-top, top + 1.0)), math.sqrt(variance)  # the lower tail, where nothing cancels
    upper, lower = log_ndtr((at + 0.5) / deviation), log_ndtr((at - 0.5) / deviation)
    return np.asarray(upper + np.log1p(-np.exp(lower - upper)), dtype=np.float64)


@pytest.mark.parametrize(("variance", "shares"), CASES)
def test_how_far_the_two_laws_part(variance: int, shares: int) -> None:
    s = variance * shares
    top = int(9 * math.sqrt(s)) + 5
    event = DiscreteGaussianEvent(variance, shares, 1.0, 1)
    gap = log_sum_law(variance, shares, top) - log_rounded(s, top)
    assert gap.max() <= below(event) * (1 + 1e-9)
    assert gap.max() >= below(event) / 2.2  # nearly attained, at the middle
    for numbers in (1, 2):
        lost, chance = -gap, np.exp(log_rounded(s, top))
        if numbers == 2:
            lost, chance = np.add.outer(lost, lost).ravel(), np.outer(chance, chance).ravel()
        for tail in (1.0, 5.0, 12.0):
            assert chance[lost > above(event, numbers, tail)].sum() <= math.exp(-tail)


def exact_delta(plain: NDArray[np.float64], shifted: NDArray[np.float64], rate: float, epsilon: float) -> float:
    """Return the larger of both directions' deltas at an epsilon, by adding up."""
    p, q = np.exp(plain), np.exp(shifted)
    p_mixed = (1 - rate) * p + rate * q
    forth = np.maximum(p_mixed - math.exp(epsilon) * p, 0).sum()
    return float(max(forth, np.maximum(p - math.exp(epsilon) * p_mixed, 0).sum()))


@pytest.mark.parametrize(
    ("variance", "shares", "move"), [(1, 1, 1), (2, 3, 2), (16, 2, 4), (400, 4, 30), (900, 2, 100)]
)
@pytest.mark.parametrize("rate", [0.1, 1.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_never_below_the_truth(variance: int, shares: int, move: int, rate: float, delta: float) -> None:
    top = int(9 * math.sqrt(variance * shares)) + 2 * move + 5
    law = log_sum_law(variance, shares, top)
    found = bound([(DiscreteGaussianEvent(variance, shares, float(move), 1, rate), 1)], delta)
    assert exact_delta(law[move:], law[:-move], rate, found.epsilon) <= delta * (1 + 1e-9)
    if variance >= 400 and found.epsilon > 0:  # fine grids: what is claimed is what there is
        assert exact_delta(law[move:], law[:-move], rate, 0.93 * found.epsilon) > delta


def test_two_coordinates_and_two_releases() -> None:
    law, move, delta = log_sum_law(100, 2, 200), 10, 1e-4
    one, moved = law[move:], law[:-move]
    event = DiscreteGaussianEvent(100, 2, math.sqrt(2) * move, 2)
    for composition in ([(event, 1)], [(DiscreteGaussianEvent(100, 2, float(move), 1), 2)]):
        found = bound(composition, delta).epsilon
        pair, pair_moved = np.add.outer(one, one).ravel(), np.add.outer(moved, moved).ravel()
        assert exact_delta(pair, pair_moved, 1.0, found) <= delta
        assert exact_delta(pair, pair_moved, 1.0, 0.98 * found) > delta


def test_on_coarse_grids_the_gaussian_alone_would_be_too_little() -> None:
    """At these few steps the integers leak more than a Gaussian of the same multiplier: the cost is needed."""
    event = DiscreteGaussianEvent(1, 1, 1.0, 1)
    law = log_sum_law(1, 1, 30)
    deltas = np.logspace(-6, -1, 60)
    assert any(exact_delta(law[1:], law[:-1], 1.0, exact_epsilon(1.0, delta)) > delta for delta in deltas)
    for delta in deltas:
        assert exact_delta(law[1:], law[:-1], 1.0, bound([(event, 1)], float(delta)).epsilon) <= delta


@pytest.mark.parametrize("rate", [0.05, 1.0])
def test_on_the_grids_that_plans_use_it_costs_nothing(rate: float) -> None:
    z, dim, delta = 20.0, 1000, 1e-5
    l2 = 101 * math.sqrt(dim)  # the scale at which rounding adds 1 % to the sensitivity
    event = DiscreteGaussianEvent(math.ceil((z * l2) ** 2 / 4), 4, l2, dim, rate)
    whole, gaussian = bound([(event, 100)], delta), bound([(Event(z, rate), 100)], delta)
    assert whole.epsilon == pytest.approx(gaussian.epsilon, rel=3e-4)
    assert whole.accountant == f"{gaussian.accountant}, integer noise"
    assert whole.epsilon < 0.95 * whole.rdp
    curve = profile([(event, 100)], delta)
    for larger in (delta, 1e-4):
        assert curve(larger) == pytest.approx(bound([(event, 100)], larger).epsilon, rel=2e-3)


def test_the_cost_by_hand() -> None:
    event = DiscreteGaussianEvent(100, 3, 5.0, 7, steps=2)
    found = close([(event, 4)], 1e-5, 1.0)
    assert found is not None
    kappa = -56 * math.log1p(-1 / 7200)
    tail = 30 + kappa + 1.0 + math.log(1e5)
    largest = 56 + 2 * math.sqrt(56 * tail) + 2 * tail
    assert found.epsilon == pytest.approx(kappa + largest / 3600 + 56 / (48 * 300**2), rel=1e-8)
    assert found.share == pytest.approx(math.exp(-kappa), rel=1e-8)
    both = close([(event, 2), (event, 2)], 1e-5, 1.0)
    assert both is not None
    tail += math.log(2)  # each has a tail of its own
    largest = 2 * (28 + 2 * math.sqrt(28 * tail) + 2 * tail)
    assert both.epsilon == pytest.approx(kappa + largest / 3600 + 56 / (48 * 300**2), rel=1e-8)


def test_where_there_is_nothing_to_say() -> None:
    still = DiscreteGaussianEvent(1, 1, 0.0, 5)
    assert close([(still, 3)], 1e-5, 0.0) == close([], 1e-5, 0.0)
    assert close([(DiscreteGaussianEvent(1, 1, 1.0, 10**4), 1)], 1e-5, 1.0) is None
    assert close([(DiscreteGaussianEvent(100, 1, 1.0, 1), 1)], 1e-5, math.inf) is None
    twice = DiscreteGaussianEvent(10**8, 3, 100.0, 7, adjacency=Adjacency.REPLACE_ONE)
    assert bound([(twice, 4)], 1e-5).accountant.endswith(", integer noise")


def with_ratio(ratio: float, rate: float = 1.0) -> DiscreteGaussianEvent:
    return DiscreteGaussianEvent(10**10, 3, math.sqrt(3e10) / ratio, 1000, rate)


@pytest.mark.parametrize(("rate", "releases"), [(0.02, 2250), (0.1, 100), (0.1, 2250), (1.0, 1), (1.0, 100)])
def test_renyi_divergence_alone_takes_8_to_11_percent_more_epsilon(rate: float, releases: int) -> None:
    """What docs/guarantees-distributed.md says at the end of section 3."""
    found = bound(((with_ratio(2 + 20 * rate * math.sqrt(releases / 100), rate), releases),), 1e-5)
    assert 1.08 < found.rdp / found.epsilon < 1.11


def test_renyi_divergence_alone_takes_18_percent_more_noise_at_a_small_epsilon() -> None:
    """Ten releases at epsilon .1, delta 1e-3, as on the Heart table."""
    assert bound(((with_ratio(55.04), 10),), 1e-3).epsilon == pytest.approx(0.1, rel=2e-3)
    assert bound(((with_ratio(55.04 * 1.18), 10),), 1e-3).rdp == pytest.approx(0.1, rel=5e-3)
