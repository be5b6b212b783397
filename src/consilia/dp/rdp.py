"""Renyi differential privacy of Gaussian releases, real or integer, at fixed integer orders.

Integer orders only: there the subsampled Gaussian has a finite sum of positive terms, so nothing cancels. The usual
series for fractional orders alternates in sign, and dp-accounting 0.6.0 gets those signs wrong.
"""

from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from consilia.dp.discrete_rdp import unsampled_rdp
from consilia.dp.event import AnyEvent, DiscreteGaussianEvent, EpsilonDeltaEvent
from consilia.dp.ranges import NOISE_MULTIPLIER, SAMPLING_RATE, countable, settled

Vector64 = NDArray[np.float64]

# Every order to 256, then 3 % apart: the best order is then missed by little. The top lets epsilon come down to
# log(1/delta) / 16384.
_DENSE, _TOP, _RATIO = 256, 16384, 1.03


def _orders() -> Vector64:
    count = int(np.ceil(np.log(_TOP / _DENSE) / np.log(_RATIO)))
    sparse = np.rint(np.geomspace(_DENSE, _TOP, count + 1))
    return np.unique(np.concatenate([np.arange(2.0, _DENSE + 1), sparse]))


ORDERS: Vector64 = _orders()


@lru_cache(maxsize=1)
def _terms() -> tuple[Vector64, NDArray[np.int64], Vector64, NDArray[np.int64]]:
    # All pairs (order a, k = 2..a) flattened: a - k, k - 2, log binomial(a, k), and where each order's run begins.
    sizes = (ORDERS - 1).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    k = np.arange(sizes.sum()) - np.repeat(starts, sizes) + 2
    a = np.repeat(ORDERS, sizes)
    log_binomial = special.gammaln(a + 1) - special.gammaln(k + 1) - special.gammaln(a - k + 1)
    return a - k, k - 2, log_binomial, starts


@lru_cache(maxsize=256)
def _one_step(noise_multiplier: float, sampling_rate: float) -> Vector64:
    if noise_multiplier == 0:
        return np.full_like(ORDERS, np.inf if sampling_rate > 0 else 0.0)
    if sampling_rate == 1:
        return ORDERS / (2 * noise_multiplier**2)
    k = np.arange(2.0, _TOP + 1)
    return _sampled((k * k - k) / (2 * noise_multiplier**2), sampling_rate)


@lru_cache(maxsize=64)
def _one_discrete_step(event: DiscreteGaussianEvent) -> Vector64:
    if event.ratio < NOISE_MULTIPLIER.low:
        return np.full_like(ORDERS, np.inf if event.sampling_rate > 0 else 0.0)
    if event.sampling_rate in (0.0, 1.0):
        return event.sampling_rate * unsampled_rdp(event, ORDERS)
    k = np.arange(2.0, _TOP + 1)
    return _sampled((k - 1) * unsampled_rdp(event, k), max(event.sampling_rate, SAMPLING_RATE.low))


def _sampled(exponent: Vector64, sampling_rate: float) -> Vector64:
    """Return RDP at `ORDERS` of a Poisson-sampled release, from the logarithms of E_Q[(P/Q)^k], k = 2.._TOP."""
    # E_Q[((1-q) + q P/Q)^a] = 1 + sum over k >= 2 of C(a,k) (1-q)^(a-k) q^k (E_Q[(P/Q)^k] - 1), because the binomial
    # law sums to 1. Without that 1 the digits that a tiny q leaves are kept.
    rest, index, log_binomial, starts = _terms()
    k = np.arange(2.0, _TOP + 1)
    with np.errstate(divide="ignore", under="ignore"):
        by_k = k * np.log(sampling_rate) + exponent + np.log(-np.expm1(-exponent))
    logs = log_binomial + rest * np.log1p(-sampling_rate) + by_k[index]
    top = np.maximum.reduceat(logs, starts)
    sizes = np.diff(np.append(starts, logs.size))
    with np.errstate(invalid="ignore", under="ignore"):
        log_sum = top + np.log(np.add.reduceat(np.exp(logs - np.repeat(top, sizes)), starts))
    log_sum = np.where(np.isneginf(top), -np.inf, log_sum)  # noise so large that every term is below 1e-308
    return np.asarray(np.logaddexp(0.0, log_sum) / (ORDERS - 1), dtype=np.float64)


def rdp_vector(event: AnyEvent) -> Vector64:
    """Return the RDP of one charge of `event` (all its steps) at `ORDERS`, shape (orders,). Vectors of charges add up.

    Guarantees:
        For every order a, the Renyi divergence of order a between the releases on neighbouring data sets, either way
        round, is at most the value returned, if each step adds Gaussian noise of `noise_multiplier` times the
        sensitivity to a sum over an independent, secret Poisson sample of rate `sampling_rate`; or discrete Gaussian
        shares to such a sum of integers; or if the release is `epsilon`-differentially private with delta = 0 (infinite
        where it has a delta).

    Source:
        Mironov, Talwar and Zhang (2019), Renyi differential privacy of the sampled Gaussian mechanism, section 3.3
        (integer orders; theorem 5 for the direction). Mironov (2017), Renyi differential privacy, for q = 1.
        Bun and Steinke (2016), Concentrated differential privacy, proposition 3.3, for pure releases.
        Kairouz, Liu and Steinke (2021) for integer noise; its sampling is proved in docs/guarantees-distributed.md.
    """
    if isinstance(event, EpsilonDeltaEvent):
        if event.delta > 0:
            return np.full_like(ORDERS, np.inf)
        return np.minimum(event.epsilon, ORDERS * event.epsilon**2 / 2)
    if event.steps == 0:
        return np.zeros_like(ORDERS)
    if not countable(event.steps):
        return np.full_like(ORDERS, np.inf)
    if isinstance(event, DiscreteGaussianEvent):
        return event.steps * _one_discrete_step(replace(event, steps=1))
    return event.steps * _one_step(*settled(event.noise_multiplier, event.sampling_rate))


def epsilon_from_rdp(rdp: Vector64, delta: float) -> float:
    """Return the smallest epsilon that RDP at `ORDERS` proves for `delta`; infinity if it proves none.

    Source:
        Canonne, Kamath and Steinke (2020), The discrete Gaussian for differential privacy, proposition 12.
    """
    candidates = rdp + np.log1p(-1 / ORDERS) - (np.log(delta) + np.log(ORDERS)) / (ORDERS - 1)
    return max(0.0, float(candidates.min()))
