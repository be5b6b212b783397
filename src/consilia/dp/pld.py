"""Privacy loss distributions, by dp-accounting, on a grid that fits the run."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import metadata
from typing import Any

import numpy as np

# Below this the grid's own rounding (about 1e-17 a cell) is no longer small against delta: RDP alone is asked.
SMALLEST_DELTA = 1e-12
# An epsilon above this protects nobody, and its grid would fill the memory.
_LARGEST_EPSILON = 1000.0
# A grid step of 1/14 of one release's standard deviation makes epsilon (1/14)^2 / 12 = 4e-4 too large. Runs so long
# that they need extended precision take seconds: half as fine (1.7e-3) halves that.
_FINENESS, _FINENESS_LONG = 14.0, 7.0
# Most cells of all single releases, and of their composition: they bound time and memory, by the numbers alone and not by
# the clock, so that every machine finds the same epsilon. A coarser grid is still an upper bound; RDP stands beside it.
_CELLS, _CELLS_LONG, _CELLS_QUICK = 60_000, 80_000, 25_000
_COMPOSED, _COMPOSED_LONG = 1_000_000, 620_000
_MANY = 100_000  # releases: from here rounding in far tails can widen the composition, so its width is looked up first
_DOUBLE, _LONG = np.float64, np.longdouble

Part = tuple[float, float, int]
"""Noise multiplier, sampling rate, number of releases."""


@lru_cache(maxsize=1)
def name() -> str:
    """Return the accountant's name and version, as it stands in every record."""
    return f"PLD (dp-accounting {metadata.version('dp-accounting')})"


def pld_epsilon(parts: Sequence[Part], delta: float, *, about: float, quick: bool = False) -> float:
    """Return epsilon for the composition of `parts`, or infinity where this accountant cannot say.

    Args:
        parts: The releases; each adds Gaussian noise to a sum over a Poisson sample.
        delta: Target delta in (0, 1).
        about: An epsilon known to be large enough (the RDP bound); it sizes the grid.
        quick: Take a grid coarse enough for a search, where the usual one is large.

    Guarantees:
        The composition is (epsilon, delta)-differentially private under add-remove (and zero-out) adjacency. Discretised
        upwards (connect the dots). The FFT that composes T releases is off by about T half-units in the last place, in
        delta and either way (measured: 6e-11 at T = 1e6); four units each are taken off the delta asked for.

    Source:
        Doroshenko, Ghazi, Kamath, Kumar and Manurangsi (2022), Connect the dots: tighter discrete approximations of
        privacy loss distributions; implemented in dp-accounting.
    """
    curve = pld_curve(parts, delta, about=about, quick=quick)
    return math.inf if curve is None else curve(delta)


def pld_curve(
    parts: Sequence[Part], least: float, *, about: float, quick: bool = False
) -> Callable[[float], float] | None:
    """Return epsilon as a function of delta, for every delta from `least` to below 1; None where nothing can be said.

    The releases are composed once, on the grid for `least`; with `about` large enough there. See `pld_epsilon`.
    """
    steps = sum(count for _, _, count in parts)
    if least < SMALLEST_DELTA or not about <= _LARGEST_EPSILON:
        return None
    wide = _slack(steps, _DOUBLE) > 1e-3 * least
    slack = _slack(steps, _LONG if wide else _DOUBLE)
    if slack > least / 2:
        return None
    truncation = 1e-4 * least
    grid = _grid(parts, about, truncation, wide=wide, quick=quick)
    if math.isinf(grid):
        return None
    try:
        composed = _composed(parts, grid, truncation, wide=wide)
    except _TooLarge:
        return None if quick else pld_curve(parts, least, about=about, quick=True)
    except (ValueError, ArithmeticError):  # the library refuses some corners, as rates below the grid's own rounding
        return None

    def epsilon(delta: float) -> float:
        try:
            found = float(composed.get_epsilon_for_delta(delta - slack))
        except (ValueError, ArithmeticError):
            return math.inf
        return found if found >= 0 else math.inf  # a NaN is no answer

    return epsilon


class _TooLarge(Exception):  # noqa: N818  (no fault: another grid is taken)
    pass


def _composed(parts: Sequence[Part], grid: float, truncation: float, *, wide: bool) -> Any:
    composed: Any = None
    for multiplier, rate, count in parts:
        single = _single(multiplier, rate, grid, wide)
        if count >= _MANY and _composed_cells(single, count, truncation) > (_COMPOSED_LONG if wide else _COMPOSED):
            raise _TooLarge
        one = single.self_compose(count, truncation)
        composed = one if composed is None else composed.compose(one, truncation)
    return composed


def _slack(steps: int, kind: type[np.floating[Any]]) -> float:
    return 4 * float(np.finfo(kind).eps) * (steps + 1)


def _grid(parts: Sequence[Part], about: float, truncation: float, *, wide: bool, quick: bool) -> float:
    # Variance of the loss of one release, q^2 (exp(1/z^2) - 1), is what the grid has to resolve; with few releases or a
    # heavy tail the grid need not be finer than 1e-3, and never finer than a millionth of the answer.
    steps = sum(count for _, _, count in parts)
    variances = [rate**2 * math.expm1(min(multiplier**-2, 50.0)) for multiplier, rate, _ in parts]
    variance = sum(one * count for one, (_, _, count) in zip(variances, parts, strict=True))
    fitting = math.sqrt(variance / steps) / (_FINENESS_LONG if wide else _FINENESS)
    wanted = max(min(fitting, 1e-3), 1e-6 * about, 1e-9)
    cells, composed = (_CELLS_LONG, _COMPOSED_LONG) if wide else (_CELLS, _COMPOSED)
    spans = [_span(multiplier, rate) for multiplier, rate, _ in parts]
    reach = sum(
        _reach(span, one, count, truncation) for span, one, (_, _, count) in zip(spans, variances, parts, strict=True)
    )
    grid = max(wanted, sum(spans) / (_CELLS_QUICK if quick else cells), reach / composed)
    # Rounding each loss up to the grid costs epsilon about this much; where that is more than RDP loses, RDP is asked.
    lost = steps * grid**2 / 12
    return math.inf if grid > wanted and lost > 0.3 * about else grid


def _span(multiplier: float, rate: float) -> float:
    # Least to largest loss of one release, cut where the library cuts: at a tail of exp(-50), 9.8 deviations out.
    largest = 0.5 / multiplier**2 + 9.8 / multiplier
    if rate == 1:
        return 2 * largest
    grown = math.log1p(rate * math.expm1(largest)) if largest < 700 else largest + math.log(rate)
    return grown - math.log1p(rate * math.expm1(-largest))


def _reach(span: float, variance: float, count: int, truncation: float) -> float:
    # Width of the composition as the library cuts it: by Chernoff's bound at the orders k / span, k = 1..20.
    if count == 1:
        return span
    rest = math.log(2 / truncation)
    widest = min(count * variance * k / span / 2 + rest * span / k for k in range(1, 21))
    return min(2 * widest, count * span)


def _single(multiplier: float, rate: float, grid: float, wide: bool) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as plds  # noqa: PLC0415  (a second to import)

    pld = plds.from_gaussian_mechanism(multiplier, value_discretization_interval=grid, sampling_prob=rate)
    if not wide:
        return pld
    # The library composes in whatever precision the probabilities have; it has no public way to ask for more.
    remove, add = _widened(pld._pmf_remove), _widened(pld._pmf_add)
    return plds.PrivacyLossDistribution(remove, None if pld._symmetric else add)


def _composed_cells(single: Any, count: int, truncation: float) -> int:
    from dp_accounting.pld import common  # noqa: PLC0415

    widths = []
    for pmf in (single._pmf_remove, single._pmf_add):
        low, high = common.compute_self_convolve_bounds(pmf.to_dense_pmf()._probs, count, truncation)
        widths.append(high - low)
    return int(max(widths))


def _widened(pmf: Any) -> Any:
    from dp_accounting.pld import pld_pmf  # noqa: PLC0415

    dense = pmf.to_dense_pmf()
    probabilities = np.asarray(dense._probs, dtype=_LONG)
    return pld_pmf.DensePLDPmf(
        dense._discretization, dense._lower_loss, probabilities, dense._infinity_mass, dense._pessimistic_estimate
    )
