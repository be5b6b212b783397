"""The price of publishing the best of K trials: against enumeration of small mechanisms, and another library's formula."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from consilia.core.errors import PlanError
from consilia.dp import selection
from consilia.dp.accountant import ORDERS, Composition, bound, profile, rdp_epsilon
from consilia.dp.event import Event
from consilia.dp.rdp import epsilon_from_rdp, rdp_vector
from consilia.dp.selection import Profile, price, rough_price, search_epsilon, trial_noise
from consilia.dp.selection_trials import Fixed, NegativeBinomial, Poisson, Trials

Law = NDArray[np.float64]
LAWS: list[Trials] = [
    NegativeBinomial.of_mean(1.0, 4.0),
    NegativeBinomial.of_mean(0.0, 4.0),
    NegativeBinomial.of_mean(-0.5, 3.0),
    NegativeBinomial.of_mean(0.5, 12.0),
    Poisson(1.0),
    Poisson(6.0),
]
NO_RDP = np.full_like(ORDERS, np.inf)


def hockey(p: Law, q: Law, epsilon: float) -> float:
    """The smallest delta at epsilon, both ways round."""
    factor = math.exp(epsilon)
    return max(float(np.maximum(p - factor * q, 0).sum()), float(np.maximum(q - factor * p, 0).sum()))


def profile_of(p: Law, q: Law) -> Profile:
    """The smallest epsilon at each delta, exactly (the inverse of `hockey`)."""

    def epsilon(delta: float) -> float:
        if hockey(p, q, 0.0) <= delta:
            return 0.0
        low, high = 0.0, 60.0
        if hockey(p, q, high) > delta:
            return math.inf
        while high - low > 1e-12:
            middle = (low + high) / 2
            low, high = (low, middle) if hockey(p, q, middle) <= delta else (middle, high)
        return high

    return epsilon


def renyi_of(p: Law, q: Law) -> NDArray[np.float64]:
    """Renyi divergences at `ORDERS`, the larger of both ways round."""
    found = []
    for a, b in ((p, q), (q, p)):
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = ORDERS[:, None] * np.log(a) - (ORDERS[:, None] - 1) * np.log(b)
        logs = np.where(a == 0, -np.inf, logs)
        top = logs.max(axis=1)
        with np.errstate(invalid="ignore"):
            found.append((top + np.log(np.exp(logs - top[:, None]).sum(axis=1))) / (ORDERS - 1))
    return np.asarray(np.nan_to_num(np.maximum(*found), nan=np.inf, posinf=np.inf))


def generating(trials: Trials, x: Law) -> Law:
    """E[x^K], in closed form."""
    if isinstance(trials, Poisson):
        return np.asarray(np.exp(trials.mean * (x - 1)))
    assert isinstance(trials, NegativeBinomial)
    inside = 1 - (1 - trials.gamma) * x
    if trials.eta == 0:
        return np.asarray(np.log(inside) / math.log(trials.gamma))
    return np.asarray((inside**-trials.eta - 1) / (trials.gamma**-trials.eta - 1))


def best_of(trials: Trials, p: Law) -> Law:
    """The law of the winner: outcome i wins if all rank up to i and not all up to i - 1; the last place is "no trial"."""
    ranked = generating(trials, np.concatenate([[0.0], np.cumsum(p)]))
    return np.concatenate([np.diff(ranked), ranked[:1]])


@pytest.mark.parametrize("trials", LAWS, ids=str)
def test_the_generating_function_is_that_of_the_chances(trials: Trials) -> None:
    summed = [sum(trials.chance(k) * x**k for k in range(400)) for x in (0.0, 0.3, 0.9)]
    assert generating(trials, np.array([0.0, 0.3, 0.9])) == pytest.approx(summed)


laws = st.lists(st.integers(0, 40), min_size=2, max_size=6).filter(lambda weights: sum(weights) > 0)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Law, Law]:
    """Two laws of one trial on the same outcomes, worst first, some far apart and some close."""
    p = np.array(draw(laws), float)
    q = np.array(
        draw(st.lists(st.integers(0, 40), min_size=len(p), max_size=len(p)).filter(lambda w: sum(w) > 0)), float
    )
    mix = draw(st.sampled_from([0.0, 0.5, 0.9, 0.99]))
    p, q = p / p.sum(), q / q.sum()
    return p, mix * p + (1 - mix) * q


def true_delta(trials: Trials, p: Law, q: Law, epsilon: float) -> float:
    return 0.0 if math.isinf(epsilon) else hockey(best_of(trials, p), best_of(trials, q), epsilon)


@given(pairs(), st.sampled_from(LAWS), st.sampled_from([0.3, 0.05, 1e-3, 1e-6]))
@settings(max_examples=150, deadline=None)
def test_the_winner_never_loses_more_than_either_bound(pair: tuple[Law, Law], trials: Trials, delta: float) -> None:
    p, q = pair
    exact, renyi = profile_of(p, q), renyi_of(p, q)

    def by_renyi(share: float) -> float:
        return epsilon_from_rdp(renyi, share)

    for one, rdp in ((exact, NO_RDP), (by_renyi, renyi), (exact, renyi)):
        epsilon = search_epsilon(one, rdp, trials, delta)
        if math.isfinite(epsilon):
            assert true_delta(trials, p, q, epsilon) <= delta * (1 + 1e-6) + 1e-11


# Few trials are very good, twice as many on the neighbouring data; few come next, half as many.
STEEP = (np.array([0.97, 0.01, 0.02]), np.array([0.955, 0.005, 0.04]))
# An outcome near the top that the neighbouring data never give.
LEAK = (np.array([0.55, 0.0, 0.45]), np.array([0.549, 0.001, 0.45]))


def _violated(cheaper: Callable[[Profile, NegativeBinomial, float], float]) -> bool:
    cases = [
        (NegativeBinomial.of_mean(eta, mean), pair, delta)
        for mean in (4.0, 30.0, 300.0)
        for eta in (0.0, 1.0)
        for pair in (STEEP, LEAK)
        for delta in (1e-2, 2e-3, 1e-4)
    ]
    return any(
        true_delta(trials, p, q, cheaper(profile_of(p, q), trials, delta)) > delta * 1.001
        for trials, (p, q), delta in cases
    )


def _ranks(one: Profile, trials: NegativeBinomial, delta: float) -> float:
    return selection._rank_ratio(one, 1 / trials.gamma - 1, delta / trials.mean)


def test_no_term_of_the_price_can_be_left_out() -> None:
    assert not _violated(lambda one, trials, delta: search_epsilon(one, NO_RDP, trials, delta))
    assert not _violated(lambda one, t, delta: one(delta / t.mean) + (1 + t.eta) * _ranks(one, t, delta))
    assert _violated(lambda one, t, delta: one(delta / t.mean))
    assert _violated(lambda one, t, delta: one(delta) + (1 + t.eta) * _ranks(one, t, delta))
    assert _violated(lambda one, t, delta: one(delta / t.mean) + t.eta * _ranks(one, t, delta))


def test_the_bound_is_close_where_ranks_matter_most() -> None:
    # A geometric number of trials of a mechanism whose best outcome tells: half the price and more is really lost.
    p, q = np.array([0.999, 0.001]), np.array([0.99, 0.01])
    trials = NegativeBinomial.of_mean(1.0, 200.0)
    epsilon = search_epsilon(profile_of(p, q), NO_RDP, trials, 0.05)
    assert true_delta(trials, p, q, epsilon) <= 0.05 < true_delta(trials, p, q, 0.3 * epsilon)


@pytest.mark.parametrize(("eta", "shape"), [(1.0, 1.0), (0.0, 0.0), (0.5, 0.5), (None, math.inf)])
@pytest.mark.parametrize("mean", [2.0, 10.0, 50.0])
def test_the_renyi_part_is_the_published_theorem(eta: float | None, shape: float, mean: float) -> None:
    from dp_accounting.rdp import rdp_privacy_accountant as other

    renyi = 400 * rdp_vector(Event(1.3, 0.02))
    published = epsilon_from_rdp(other._compute_rdp_repeat_and_select(ORDERS, renyi, mean, shape), 1e-5)
    trials: Trials = Poisson(mean) if eta is None else NegativeBinomial.of_mean(eta, mean)
    least = 1e-5 / trials.mean

    def one(share: float) -> float:  # of the profile only what the theorem uses
        return epsilon_from_rdp(renyi, least) if share <= least * (1 + 1e-9) else math.inf

    expected = published
    if isinstance(trials, NegativeBinomial):  # that ranks cannot move by more than 1 / gamma is known without data
        expected = min(published, one(least) - (1 + trials.eta) * math.log(trials.gamma))
    assert search_epsilon(one, renyi, trials, 1e-5) == pytest.approx(expected, rel=1e-6)


BASE = ((Event(2.0, 0.1, 5), 40),)


@pytest.mark.parametrize("trials", [law for law in LAWS if law.mean > 2])
def test_a_search_costs_more_than_a_trial_and_less_by_profiles_than_by_renyi_alone(trials: Trials) -> None:
    found = price([BASE], trials, 1e-5).epsilon
    assert bound(BASE, 1e-5 / trials.mean).epsilon <= found <= rough_price([BASE], trials, 1e-5)
    assert found <= price([BASE], trials, 1e-5, quick=True).epsilon * (1 + 1e-3)


def test_keeping_only_the_best_of_ten_costs_less_than_half_of_ten_releases() -> None:
    every = price([BASE], Fixed(10), 1e-5)
    assert every.epsilon == bound([(Event(2.0, 0.1, 5), 400)], 1e-5).epsilon
    assert price([BASE], NegativeBinomial.of_mean(1.0, 10.0), 1e-5).epsilon < 0.5 * every.epsilon


def test_the_costliest_candidate_counts() -> None:
    dearer = ((Event(2.0, 0.1, 5), 60),)
    for trials in (NegativeBinomial.of_mean(0.0, 5.0), Fixed(5)):
        alone, both = price([dearer], trials, 1e-5).epsilon, price([BASE, dearer], trials, 1e-5).epsilon
        assert both >= alone * (1 - 1e-9)
        assert price([BASE, BASE], trials, 1e-5).epsilon >= price([BASE], trials, 1e-5).epsilon * (1 - 1e-9)


@pytest.mark.parametrize(
    "composition",
    [BASE, ((Event(1.1, 0.01), 1000),), ((Event(8.0), 40),), ((Event(1.5, 0.2), 30), (Event(6.0), 4))],
    ids=["batches", "steps", "unsampled", "mixed"],
)
def test_a_profile_is_the_bound_at_every_delta(composition: Composition) -> None:
    curve = profile(composition, 1e-6)
    for delta in (1e-6, 1e-5, 1e-3, 0.05, 0.2):
        exact = bound(composition, delta).epsilon
        assert exact * (1 - 2e-3) - 1e-6 <= curve(delta) <= exact * (1 + 2e-2) + 2e-3
        assert curve(delta) <= rdp_epsilon(composition, delta)


def test_without_noise_there_is_no_price() -> None:
    assert price([((Event(0.0), 1),)], NegativeBinomial.of_mean(1.0, 5.0), 1e-5).epsilon == math.inf


@pytest.mark.parametrize("trials", [NegativeBinomial.of_mean(1.0, 10.0), Poisson(5.0), Fixed(4)])
def test_noise_is_calibrated_to_the_whole_search(trials: Trials) -> None:
    def make(z: float) -> list[tuple[tuple[Event, int], ...]]:
        return [((Event(z), 30),)]

    z = trial_noise(epsilon=2.0, delta=1e-5, trials=trials, make=make)
    assert price(make(z), trials, 1e-5).epsilon <= 2.0
    assert price(make(z / 1.01), trials, 1e-5).epsilon > 2.0


def test_a_target_that_no_noise_meets_is_refused_in_words() -> None:
    with pytest.raises(PlanError, match="10 trials on average"):
        trial_noise(
            epsilon=1e-5, delta=1e-9, trials=NegativeBinomial.of_mean(1.0, 10.0), make=lambda z: [((Event(z), 30),)]
        )


def test_numbers_without_meaning_are_refused() -> None:
    with pytest.raises(PlanError, match="at least one candidate"):
        price([], Fixed(2), 1e-5)
    with pytest.raises(PlanError, match="a delta between 0 and 1"):
        price([BASE], Fixed(2), 0.0)
