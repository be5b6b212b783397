"""From events to epsilon: the tightest valid bound for a fixed schedule, and a cheap display for every round."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from consilia.core.errors import PlanError, Problem
from consilia.core.spec import Adjacency
from consilia.core.version import VERSION
from consilia.dp import pld
from consilia.dp.discrete_close import Close, close
from consilia.dp.event import AnyEvent, DiscreteGaussianEvent, EpsilonDeltaEvent, Event
from consilia.dp.gaussian import exact_epsilon
from consilia.dp.ranges import countable, settled
from consilia.dp.rdp import ORDERS, epsilon_from_rdp, rdp_vector

__all__ = [
    "ORDERS",
    "Bound",
    "Composition",
    "bound",
    "epsilon_from_rdp",
    "profile",
    "quick_bound",
    "rdp_epsilon",
    "rdp_vector",
]

Composition = Sequence[tuple[AnyEvent, int]]
"""Pairs (event, number of times it is charged)."""


@dataclass(frozen=True)
class Bound:
    """What the accountants say about a composition at one delta.

    Attributes:
        epsilon: The smallest valid bound; infinity if there is none.
        accountant: Name and version of the accountant that gave it.
        rdp: What RDP at integer orders gives.
        pld: What the privacy loss distribution gives (exact where nothing is sampled), with what is added to it; infinity
            where it cannot say.
    """

    epsilon: float
    accountant: str
    rdp: float
    pld: float


def bound(composition: Composition, delta: float) -> Bound:
    """Return the tightest valid epsilon of a composition whose events are fixed in advance.

    Releases with an (epsilon, delta) of their own are added to what the others give for the rest of delta (basic
    composition); pure ones may enter the RDP instead: the smaller counts. Where all are pure, delta may be 0. Integer noise
    counts as the Gaussian that it is close to, with what that costs, or by RDP.

    Raises:
        PlanError: If delta is not in (0, 1), or an event has no meaning.

    Guarantees:
        The composition is (epsilon, delta)-differentially private under the adjacency of its events, if each step ran as
        its event says. Every candidate is an upper bound by itself and none depends on data, so the minimum is valid.
    """
    composition = tuple(composition)
    _require_meaning(composition, delta)
    return _bound(composition, float(delta), False)


def quick_bound(composition: Composition, delta: float) -> Bound:
    """Return a valid bound that is cheap enough for a search: `bound` itself, or on a coarser grid a little above it.

    Raises:
        PlanError: If delta is not in (0, 1), or an event has no meaning.
    """
    composition = tuple(composition)
    _require_meaning(composition, delta)
    return _bound(composition, float(delta), True)


def profile(composition: Composition, least: float, *, quick: bool = False) -> Callable[[float], float]:
    """Return valid epsilons of a composition as a function of delta, from `least` to below 1; composed only once.

    Raises:
        PlanError: If `least` is not in (0, 1), or an event has no meaning.
    """
    composition = tuple(composition)
    _require_meaning(composition, least)
    parts, integer, whole = _merged(composition), _integer(composition), _whole(composition)
    about = _rdp_epsilon(parts, integer, least)
    twin, cost = _as_gaussian(parts, integer, least, about)
    unsampled = len(twin) == 1 and twin[0][1] == 1
    noisy = all(multiplier > 0 for multiplier, _, _ in twin) and countable(sum(count for _, _, count in twin))
    curve = None
    if twin and noisy and not unsampled and cost is not None:
        curve = pld.pld_curve(twin, least * cost.share, about=about, quick=quick)
    total, spent = _sums(whole)
    if curve is None or cost is None or spent:
        return lambda delta: _bound(composition, delta, quick).epsilon
    # What it costs at the least delta is enough at every larger one.
    return lambda delta: min(
        _rdp_epsilon(parts, (*integer, *whole), delta), total + cost.epsilon + curve(delta * cost.share)
    )


@lru_cache(maxsize=512)
def _bound(composition: tuple[tuple[AnyEvent, int], ...], delta: float, quick: bool) -> Bound:
    whole, parts, integer = _whole(composition), _merged(composition), _integer(composition)
    if not whole:
        return _noise_bound(parts, integer, delta, quick)
    total, spent = _sums(whole)
    rest = delta - spent
    if rest < 0 or (rest == 0 and (parts or integer)):
        return Bound(math.inf, "none: delta is used up", math.inf, math.inf)
    if not parts and not integer:
        by_sum, by_pld, name = total, math.inf, _own("sum of epsilons")
    else:
        noise = _noise_bound(parts, integer, rest, quick)
        by_sum, by_pld = total + noise.epsilon, total + noise.pld
        name = f"sum of epsilons; {noise.accountant}"
    by_rdp = math.inf if spent or rest == 0 else _rdp_epsilon(parts, (*integer, *whole), rest)
    if by_sum <= by_rdp:
        return Bound(by_sum, name, by_rdp, by_pld)
    return Bound(by_rdp, _own("RDP at integer orders"), by_rdp, by_pld)


def _whole(composition: Iterable[tuple[AnyEvent, int]]) -> list[tuple[EpsilonDeltaEvent, int]]:
    return [(event, times) for event, times in composition if isinstance(event, EpsilonDeltaEvent) and times]


def _integer(composition: Iterable[tuple[AnyEvent, int]]) -> list[tuple[DiscreteGaussianEvent, int]]:
    return [(event, times) for event, times in composition if isinstance(event, DiscreteGaussianEvent) and times]


def _sums(whole: Iterable[tuple[EpsilonDeltaEvent, int]]) -> tuple[float, float]:
    pairs = [(event.epsilon * times, event.delta * times) for event, times in whole]
    return math.fsum(epsilon for epsilon, _ in pairs), math.fsum(delta for _, delta in pairs)


def _noise_bound(
    parts: Sequence[pld.Part], integer: Sequence[tuple[DiscreteGaussianEvent, int]], delta: float, quick: bool
) -> Bound:
    if not parts and not integer:
        return Bound(0.0, "nothing is charged", 0.0, 0.0)
    if any(multiplier == 0 for multiplier, _, _ in parts):
        return Bound(math.inf, "none: a release has no noise", math.inf, math.inf)
    if not countable(sum(count for _, _, count in parts)):
        return Bound(math.inf, "none: too many releases", math.inf, math.inf)
    by_rdp = _rdp_epsilon(parts, integer, delta)
    twin, cost = _as_gaussian(parts, integer, delta, by_rdp)
    if by_rdp == 0 or cost is None or any(multiplier == 0 for multiplier, _, _ in twin):
        return Bound(by_rdp, _own("RDP at integer orders"), by_rdp, math.inf)  # nothing is left, or known, to tighten
    if len(twin) == 1 and twin[0][1] == 1:
        multiplier, _, count = twin[0]
        by_pld, name = exact_epsilon(math.sqrt(count) / multiplier, delta * cost.share), _own("analytic Gaussian")
    else:
        by_pld, name = pld.pld_epsilon(twin, delta * cost.share, about=by_rdp, quick=quick), pld.name()
    by_pld += cost.epsilon
    if by_pld <= by_rdp:
        return Bound(by_pld, name + (", integer noise" if integer else ""), by_rdp, by_pld)
    return Bound(by_rdp, _own("RDP at integer orders"), by_rdp, by_pld)


def _as_gaussian(
    parts: Sequence[pld.Part], integer: Sequence[tuple[DiscreteGaussianEvent, int]], delta: float, about: float
) -> tuple[list[pld.Part], Close | None]:
    """Return all noise as Gaussian noise, and what that costs where some of it is integer."""
    if not integer:
        return list(parts), Close(0.0, 1.0)
    twins = [(Event(event.ratio, event.sampling_rate, event.steps), times) for event, times in integer]
    return _merged([*((Event(*part), 1) for part in parts), *twins]), close(integer, delta, about)


@cache  # the version is read from a file: too slow for the display of every round
def _own(accountant: str) -> str:
    return f"{accountant} (Consilia {VERSION})"


def rdp_epsilon(composition: Composition, delta: float) -> float:
    """Return what RDP alone gives: quick, valid, and above `bound` by some 5 to 20 %.

    Raises:
        PlanError: If delta is not in (0, 1), or an event has no meaning.
    """
    _require_meaning(composition, delta)
    parts, integer, whole = _merged(composition), _integer(composition), _whole(composition)
    total, spent = _sums(whole)
    if not parts and not integer:
        return _bound(tuple(composition), delta, True).epsilon
    if spent:
        return total + _rdp_epsilon(parts, integer, delta - spent) if delta > spent else math.inf
    return _rdp_epsilon(parts, (*integer, *whole), delta)


def _rdp_epsilon(parts: Sequence[pld.Part], others: Composition, delta: float) -> float:
    rdp = np.zeros_like(ORDERS)
    for multiplier, rate, count in parts:
        rdp = rdp + rdp_vector(Event(multiplier, rate, count))
    for event, times in others:
        rdp = rdp + times * rdp_vector(event)
    return epsilon_from_rdp(rdp, delta)


def _merged(composition: Iterable[tuple[AnyEvent, int]]) -> list[pld.Part]:
    # Equal mechanisms become one count; everything without sampling becomes one Gaussian (1/z^2 adds up).
    counts: dict[tuple[float, float], int] = {}
    for event, times in composition:
        if not isinstance(event, Event):
            continue
        if times and event.steps and event.sampling_rate > 0 and not math.isinf(event.noise_multiplier):
            key = settled(event.noise_multiplier, event.sampling_rate)
            counts[key] = counts.get(key, 0) + times * event.steps
    unsampled = {key: count for key, count in counts.items() if key[1] == 1}
    parts = [(z, q, count) for (z, q), count in counts.items() if q < 1]
    if len(unsampled) == 1 or any(z == 0 for z, _ in unsampled):
        parts += [(z, q, count) for (z, q), count in unsampled.items()]
    elif unsampled:
        gaussian = math.fsum(count / z**2 for (z, _), count in unsampled.items()) ** -0.5
        parts.append((*settled(gaussian, 1.0), 1))
    return parts


def _require_meaning(composition: Composition, delta: float) -> None:
    problems: list[Problem] = []
    all_pure = bool(composition) and all(
        isinstance(event, EpsilonDeltaEvent) and not event.delta for event, _ in composition
    )
    if not (0 < delta < 1 or (delta == 0 and all_pure)):
        problems.append(Problem("privacy accounting", "a delta between 0 and 1", str(delta),
                                "Usual is 1e-5, or a tenth of 1 / the published count"))  # fmt: skip
    for event, times in composition:
        who = "a privacy event"
        if isinstance(event, EpsilonDeltaEvent):
            if not (event.epsilon >= 0 and 0 <= event.delta < 1) or times < 0:
                problems.append(Problem(who, "an epsilon and a count of at least 0, and a delta in [0, 1)",
                                        f"epsilon {event.epsilon}, delta {event.delta}, charged {times} times",
                                        "Take it from what ran"))  # fmt: skip
            continue
        if isinstance(event, DiscreteGaussianEvent):
            if event.share_variance < 1 or event.shares < 1 or event.dim < 1 or not 0 <= event.l2 < math.inf:
                problems.append(Problem(who, "shares, a variance and a dimension of at least 1, and a finite sensitivity",
                                        f"{event.shares} shares of variance {event.share_variance}, dimension {event.dim}, "
                                        f"sensitivity {event.l2}", "Take them from the grid and the shares"))  # fmt: skip
        elif not event.noise_multiplier >= 0:
            problems.append(Problem(who, "a noise multiplier of at least 0", str(event.noise_multiplier),
                                    "It is the noise's standard deviation over the sensitivity, such as 1.1"))  # fmt: skip
        if not 0 <= event.sampling_rate <= 1:
            problems.append(Problem(who, "a sampling rate in [0, 1]", str(event.sampling_rate),
                                    "It is the chance of a record to join a step, such as 0.01"))  # fmt: skip
        if event.steps < 0 or times < 0:
            problems.append(Problem(who, "counts of at least 0", f"{event.steps} steps charged {times} times",
                                    "Count every noisy step, and how often it is charged"))  # fmt: skip
        if event.adjacency is Adjacency.REPLACE_ONE and event.sampling_rate != 1:
            problems.append(Problem(who, "add-remove adjacency where records are sampled",
                                    f"replace-one with sampling rate {event.sampling_rate}",
                                    "State the sensitivity of adding or removing one record"))  # fmt: skip
    relations = {event.adjacency for event, times in composition if times}
    if Adjacency.REPLACE_ONE in relations and len(relations) > 1:
        # The same mechanism has up to twice the sensitivity under replace-one: adding both up would mean nothing.
        problems.append(Problem("privacy accounting", "events of one adjacency", ", ".join(sorted(relations)),
                                "State every sensitivity of the run for replacing one record"))  # fmt: skip
    if problems:
        raise PlanError(problems)
