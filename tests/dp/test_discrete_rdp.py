"""The bound on summed integer noise against Renyi divergences added up term by term, in both directions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import logsumexp

from consilia.dp.discrete_rdp import tau, unsampled_rdp
from consilia.dp.event import DiscreteGaussianEvent, Event
from consilia.dp.rdp import ORDERS, rdp_vector

Logs = NDArray[np.float64]


def log_law(variance: float, top: int) -> Logs:
    """Return log masses of the discrete Gaussian on -top..top."""
    logs = -(np.arange(-top, top + 1.0) ** 2) / (2 * variance)
    return np.asarray(logs - logsumexp(logs), dtype=np.float64)


def log_sum_law(variance: float, shares: int, top: int) -> Logs:
    """Return log masses of the sum of shares on -top..top, by convolution in logarithms: no tail is lost to underflow."""
    one = log_law(variance, top)
    total = one
    at = np.arange(2 * top + 1)
    back = at[:, None] - at[None, :] + top  # index of z - x
    inside = (back >= 0) & (back <= 2 * top)
    for _ in range(shares - 1):
        total = logsumexp(np.where(inside, one[np.clip(back, 0, 2 * top)], -np.inf) + total[None, :], axis=1)
    return np.asarray(total, dtype=np.float64)


def divergences(plain: Logs, shifted: Logs, rate: float, order: int) -> tuple[float, float]:
    """Return the Renyi divergences of the sampled mixture from the plain law, and the other way round.

    Terms left out at the ends are positive, so each is at most the true one.
    """
    mixed = np.logaddexp(math.log1p(-rate) + plain, math.log(rate) + shifted) if rate < 1 else shifted
    forth = logsumexp(order * mixed + (1 - order) * plain) / (order - 1)
    back = logsumexp(order * plain + (1 - order) * mixed) / (order - 1)
    return float(forth), float(back)


def one_coordinate(variance: int, shares: int, move: int, rate: float, order: int) -> tuple[float, float]:
    top = order * move + int(9 * math.sqrt(variance * shares)) + 5
    law = log_sum_law(variance, shares, top)
    return divergences(law[move:], law[:-move], rate, order)


def bounded(event: DiscreteGaussianEvent, order: int) -> float:
    return float(rdp_vector(event)[order == ORDERS][0])


CASES = [(1, 1), (1, 2), (1, 5), (2, 3), (4, 1), (16, 2)]


@pytest.mark.parametrize(("variance", "shares"), CASES)
@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9, 1.0])
def test_never_below_the_true_divergence_in_either_direction(variance: int, shares: int, rate: float) -> None:
    for move in (1, 3):
        event = DiscreteGaussianEvent(variance, shares, float(move), 1, rate)
        for order in (2, 3, 8, 24):
            forth, back = one_coordinate(variance, shares, move, rate, order)
            claimed = bounded(event, order) * (1 + 1e-9) + 1e-13
            assert forth <= claimed
            assert back <= claimed
            assert back <= forth * (1 + 1e-9) + 1e-13  # the lemma that spares the second direction


@pytest.mark.parametrize(("variance", "shares"), [(4, 1), (16, 2)])
@pytest.mark.parametrize("rate", [0.01, 0.3, 1.0])
def test_tight_where_the_sum_is_close_to_its_limit(variance: int, shares: int, rate: float) -> None:
    for order in (2, 3, 8):
        forth, _ = one_coordinate(variance, shares, 1, rate, order)
        assert bounded(DiscreteGaussianEvent(variance, shares, 1.0, 1, rate), order) == pytest.approx(forth, rel=1e-9)
    # Less noise than that many shares have is seen.
    assert one_coordinate(variance, shares, 1, rate, 2)[0] > 1.05 * bounded(
        DiscreteGaussianEvent(variance, shares + 1, 1.0, 1, rate), 2
    )


@settings(max_examples=40, deadline=None)
@given(st.floats(0.3, 30), st.integers(1, 4), st.floats(1e-4, 0.999), st.integers(2, 40))
def test_the_second_direction_is_never_larger(variance: float, move: int, rate: float, order: int) -> None:
    top = order * move + int(9 * math.sqrt(variance)) + 5
    law = log_law(variance, top)
    forth, back = divergences(law[move:], law[:-move], rate, order)
    assert back <= forth + 1e-12 * (1 + abs(forth))


@pytest.mark.parametrize("rate", [0.2, 1.0])
def test_two_coordinates_at_once(rate: float) -> None:
    law = log_sum_law(1, 3, 60)
    plain, shifted = law[1:], law[:-1]
    event = DiscreteGaussianEvent(1, 3, math.sqrt(2), 2, rate)
    for order in (2, 6, 20):
        both = divergences(np.add.outer(plain, plain).ravel(), np.add.outer(shifted, shifted).ravel(), rate, order)
        assert max(both) <= bounded(event, order) * (1 + 1e-9)


@pytest.mark.parametrize(("variance", "shares"), [(1, 2), (1, 3), (1, 6), (2, 4)])
def test_tau_bounds_how_far_a_sum_is_from_a_discrete_gaussian(variance: int, shares: int) -> None:
    top = 40
    gap = log_sum_law(variance, shares, 4 * top) - log_law(variance * shares, 4 * top)
    gap = gap[3 * top : 5 * top + 1]
    half = tau(variance, shares) / 2
    assert np.ptp(gap) <= half
    assert np.abs(gap).max() <= half
    if shares == 2:
        assert np.ptp(gap) >= half / 2  # one convolution: nearly attained


def test_tau_by_hand() -> None:
    assert tau(1, 1) == 0
    assert tau(1, 3) == pytest.approx(10 * (math.exp(-(math.pi**2)) + math.exp(-4 * math.pi**2 / 3)))
    assert tau(16, 100) < 1e-60


def test_the_least_of_three_bounds_by_hand() -> None:
    event, orders = DiscreteGaussianEvent(1, 3, 2.0, 10), np.array([2.0, 50.0])
    t, a = tau(1, 3), 2 / math.sqrt(3)
    b = min(math.sqrt(10) * 2, 4.0) / math.sqrt(3)
    three = [
        orders / 2 * a * a + 10 * t,
        orders / 2 * (a * a + 2 * b * t + 10 * t * t),
        orders / 2 * (a + math.sqrt(10) * t) ** 2,
    ]
    assert unsampled_rdp(event, orders) == pytest.approx(np.min(three, axis=0), rel=1e-14)


@pytest.mark.parametrize("rate", [1e-6, 0.01, 0.5, 1.0])
def test_fine_grids_cost_what_the_gaussian_costs(rate: float) -> None:
    event = DiscreteGaussianEvent(10**12, 10, 2.5e6, 10**6, rate, steps=3)
    assert event.ratio == pytest.approx(math.sqrt(10) * 1e6 / 2.5e6)
    assert rdp_vector(event) == pytest.approx(rdp_vector(Event(event.ratio, rate, 3)), rel=1e-10)


def test_corners() -> None:
    assert (rdp_vector(DiscreteGaussianEvent(1, 1, 0.0, 5, 0.3)) == 0).all()
    assert (rdp_vector(DiscreteGaussianEvent(1, 1, 1.0, 5, 0.0)) == 0).all()
    assert (rdp_vector(DiscreteGaussianEvent(1, 1, 1.0, 5, steps=0)) == 0).all()
    assert np.isinf(rdp_vector(DiscreteGaussianEvent(1, 1, 1e4, 5))).all()
    assert np.isfinite(rdp_vector(DiscreteGaussianEvent(1, 10, 1.0, 1000, 0.5))).all()
