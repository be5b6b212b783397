"""What it costs to publish only the best of K trials, with K random and secret.

One trial draws a candidate, trains, scores; all trials are alike and independent. With f(x) = E[x^K], m = f'(1) = E[K],
p, p' the laws of one trial on neighbouring data, u, u' the chances of an outcome that ranks above y: the best of K has
density p(y) f'(1 - u(y)). Hence the price has two parts, and both theorems below are instances of

    epsilon of the search at delta  =  epsilon of one trial at delta / m  +  log of the largest f'(1 - u) / f'(1 - u').

Proofs: docs/guarantees-tuning.md.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from consilia.core.errors import PlanError, Problem
from consilia.dp.accountant import Bound, Composition, bound, profile, quick_bound, rdp_epsilon
from consilia.dp.calibrate import least_noise
from consilia.dp.event import AnyEvent
from consilia.dp.rdp import ORDERS, Vector64, epsilon_from_rdp, rdp_vector
from consilia.dp.selection_trials import Fixed, NegativeBinomial, Trials

Profile = Callable[[float], float]
"""An epsilon for each delta at or above the one it was made for; any valid upper bound will do."""

_NARROW = 1e-2  # the second part of the price, found by a search, may be this share too large


@dataclass(frozen=True)
class Price:
    """What a search costs at one delta.

    Attributes:
        epsilon: For everything the search publishes: the winner, its score, its records.
        accountant: What gave the bound.
    """

    epsilon: float
    accountant: str


def search_epsilon(one: Profile, rdp: Vector64, trials: Trials, delta: float) -> float:
    """Return epsilon of "the best of K trials" at `delta`, from what is known of one trial.

    Args:
        one: Profile of one trial, from delta / E[K] upwards; for both directions of the neighbouring relation.
        rdp: Its Renyi DP at `ORDERS`, shape (orders,), for both directions; infinity where it is not known.
        trials: The law of K.
        delta: Of the guarantee.

    Guarantees:
        If every trial is an independent run of one mechanism with that profile and that Renyi DP, K follows the law
        independently of the data, and only an outcome that ranks first in an order fixed beforehand is published (ties
        broken without the data), then that is (value returned, delta)-differentially private. K must not be published.

    Source:
        Renyi parts: Papernot and Steinke (2022), Hyperparameter tuning with Renyi differential privacy, theorems 2 and 6.
        The rest: docs/guarantees-tuning.md, theorem T; compare Koskela, Redberg and Wang (2024), Privacy profiles for
        private selection.
    """
    if isinstance(trials, Fixed):
        raise TypeError("a fixed number of trials is a composition")
    base = one(delta / trials.mean)
    if isinstance(trials, NegativeBinomial):
        odds = 1.0 / trials.gamma - 1.0
        by_rdp = float(np.min((1.0 - 1.0 / ORDERS) * rdp - math.log(trials.gamma) / ORDERS))
        return base + (1.0 + trials.eta) * min(_rank_ratio(one, odds, delta / trials.mean), by_rdp)
    by_profile = base + trials.mean * _rank_shift(one, delta / trials.mean)
    # theorem 6: at order a the shift of ranks is counted beyond a factor 1 + 1 / (a - 1) only
    moved = _delta_from_rdp(rdp, -np.log1p(-1.0 / ORDERS))
    by_rdp = epsilon_from_rdp(rdp + trials.mean * moved + math.log(trials.mean) / (ORDERS - 1.0), delta)
    return min(by_profile, by_rdp)


def _rank_ratio(one: Profile, odds: float, least: float) -> float:
    """Return a bound on log((g + (1 - g) u') / (g + (1 - g) u)), odds = (1 - g) / g, over all u, u' that a trial allows.

    By the profile u' <= e^t u + d(t) for every t; at the t where e^t = 1 + odds d(t) the quotient is at most e^t for
    every u. So any d with one(d) <= log(1 + odds d) proves log(1 + odds d); about the smallest such d is found.
    """
    share = _smallest(lambda d: one(d) - math.log1p(odds * d), least)
    return math.log1p(odds * share)  # at share 1 it says no more than u' <= 1 and u >= 0


def _rank_shift(one: Profile, least: float) -> float:
    """Return a bound on u' - u over all u, u' that a trial allows: its total variation distance."""
    return _smallest(one, least)


def _smallest(excess: Profile, least: float) -> float:
    """Return a d in [least, 1], within 1 % of the smallest, with excess(d) <= 0; excess falls, and is taken as such at 1."""
    if excess(least) <= 0.0:
        return least
    low, high = math.log(least), 0.0
    while high - low > _NARROW:
        middle = (low + high) / 2 if high - low < 3.0 else high - 1.5  # it lies near 1 for all but tiny epsilons
        low, high = (low, middle) if excess(math.exp(middle)) <= 0.0 else (middle, high)
    return math.exp(high)


def _delta_from_rdp(rdp: Vector64, epsilon: Vector64) -> Vector64:
    """Return for each epsilon the delta that Renyi DP at `ORDERS` proves, at most 1.

    Source:
        Canonne, Kamath and Steinke (2020), The discrete Gaussian for differential privacy, proposition 12.
    """
    logs = (ORDERS - 1.0) * (rdp - epsilon[:, None]) + (ORDERS - 1.0) * np.log1p(-1.0 / ORDERS) - np.log(ORDERS)
    return np.asarray(np.exp(np.minimum(logs.min(axis=1), 0.0)))


def _composed_rdp(base: Composition) -> Vector64:
    return np.asarray(sum((times * rdp_vector(event) for event, times in base if times), np.zeros_like(ORDERS)))


def price(bases: Sequence[Composition], trials: Trials, delta: float, *, quick: bool = False) -> Price:
    """Return what a search costs whose trials each run one of `bases`, drawn at random.

    Args:
        bases: The compositions that a trial may turn out to be, training and charged scoring together; at least one.
        trials: The law of the number of trials.
        delta: Of the guarantee.
        quick: A coarser bound, cheap enough for a search over the noise.

    Guarantees:
        The candidate is part of a trial's outcome, so one trial's profile is at most the largest over candidates at every
        delta, and its Renyi DP the largest at every order. For a random number see `search_epsilon`. A fixed number is
        bounded as the composition of all trials: valid against whoever sees every one of them.

    Raises:
        PlanError: If delta or an event has no meaning.
    """
    _require(bases, delta)
    known = tuple(tuple(base) for base in bases)
    return _price(known, trials, float(delta), quick)


@lru_cache(maxsize=64)
def _price(bases: tuple[tuple[tuple[AnyEvent, int], ...], ...], trials: Trials, delta: float, quick: bool) -> Price:
    look = quick_bound if quick else bound
    worst = np.max([_composed_rdp(base) for base in bases], axis=0)
    if isinstance(trials, Fixed):
        found = _composed([_times(base, trials.count) for base in bases], trials.count * worst, delta, look)
        return Price(found.epsilon, f"{found.accountant}, {trials.count} trials composed")

    least = delta / trials.mean
    curves = [profile(base, least, quick=quick) for base in bases]

    def one(share: float) -> float:
        return max(curve(share) for curve in curves)

    name = max((look(base, least) for base in bases), key=lambda found: found.epsilon).accountant
    return Price(search_epsilon(one, worst, trials, delta), f"{name}, best of a random number of trials")


def _composed(
    bases: Sequence[Composition], worst: Vector64, delta: float, look: Callable[[Composition, float], Bound]
) -> Bound:
    if len(bases) == 1:
        return look(bases[0], delta)
    # Which mix of candidates costs most is not known: by Renyi DP each trial is charged as the worst.
    epsilon = epsilon_from_rdp(worst, delta)
    return Bound(epsilon, "RDP at integer orders", epsilon, math.inf)


def _times(base: Composition, count: int) -> Composition:
    return tuple((event, times * count) for event, times in base)


def rough_price(bases: Sequence[Composition], trials: Trials, delta: float) -> float:
    """Return what Renyi DP alone says of `price`: quick, valid and larger."""
    worst = np.max([_composed_rdp(base) for base in bases], axis=0)
    if isinstance(trials, Fixed):
        return epsilon_from_rdp(trials.count * worst, delta)
    return search_epsilon(lambda d: max(rdp_epsilon(base, d) for base in bases), worst, trials, delta)


def trial_noise(
    *, epsilon: float, delta: float, trials: Trials, make: Callable[[float], Sequence[Composition]]
) -> float:
    """Return the smallest noise multiplier, within 1e-4 of itself, at which the whole search costs at most `epsilon`.

    Args:
        epsilon: For everything the search publishes.
        delta: Of the guarantee.
        trials: The law of the number of trials.
        make: The compositions that a trial may be at a multiplier; more noise must never cost more.

    Raises:
        PlanError: If no multiplier meets the target.
    """
    return least_noise(
        epsilon,
        rough=lambda z: rough_price(make(z), trials, delta),
        quick=lambda z: price(make(z), trials, delta, quick=True).epsilon,
        exact=lambda z: price(make(z), trials, delta).epsilon,
        what=f"epsilon {epsilon:g} at delta {delta:g} for {trials.mean:g} trials on average",
    )


def _require(bases: Sequence[Composition], delta: float) -> None:
    problems = []
    if not bases:
        problems.append(Problem("a search", "at least one candidate", "none", "Give each key a value to try"))
    if not 0 < delta < 1:
        problems.append(Problem("a search", "a delta between 0 and 1", f"{delta:g}", "Usual is 1e-5"))
    if problems:
        raise PlanError(problems)
