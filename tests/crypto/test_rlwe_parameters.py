"""Parameters are those of the standard; what does not fit is refused; the worst case stays within the budget."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.crypto import rlwe_run
from tests.crypto.rlwe_run import Run

from consilia.core.errors import PlanError
from consilia.core.randomness import SecretRng
from consilia.crypto import rlwe, rlwe_keys, rlwe_threshold
from consilia.crypto.rlwe_field import Polynomials
from consilia.crypto.rlwe_ntt import DEGREE, SIDE
from consilia.crypto.rlwe_parameters import ETA, PRIMES, RlweParameters
from consilia.crypto.rlwe_sampling import errors, floods, ternary, uniform


def test_the_ring_is_the_row_of_the_standard() -> None:
    """Albrecht et al. (2018), table 1: ternary secret, classical, 128 bits: n = 4096, log q <= 109, sigma = 8 / sqrt(2 pi)."""
    assert DEGREE == 4096
    assert math.log2(math.prod(PRIMES)) <= 90 <= 109
    assert math.sqrt(ETA / 2) >= 8 / math.sqrt(2 * math.pi)


@pytest.mark.parametrize("p", PRIMES)
def test_the_moduli_are_primes_that_have_the_roots(p: int) -> None:
    assert 2**29 < p < 2**30
    assert p % (2 * DEGREE) == 1
    assert all(p % divisor for divisor in range(3, math.isqrt(p) + 1, 2))


def test_secrets_are_ternary_and_errors_binomial() -> None:
    secrets, noise = ternary(400, rlwe_run.rng("t")).ravel(), errors(50, rlwe_run.rng("e")).ravel()
    counts = np.array([(secrets == value).sum() for value in (-1, 0, 1)])
    third, size = len(secrets) / 3, len(noise)
    assert counts.sum() == len(secrets)
    assert ((counts - third) ** 2 / third).sum() < 18.4  # chi-square, 2 degrees, 1e-4; a biased octet would give 50
    law = np.array([math.comb(2 * ETA, ETA + k) for k in range(-12, 13)]) / 4.0**ETA * size
    seen = np.array([(noise == k).sum() for k in range(-12, 13)])
    assert np.abs(noise).max() <= ETA
    assert ((seen - law) ** 2 / law).sum() < 60.1  # 25 cells, 1e-4
    assert not ((seen - law[np.r_[1:25, 0]]) ** 2 / law).sum() < 60.1  # a law that is one off would be seen


def test_floods_and_residues_are_uniform() -> None:
    for bits in (55, 62):
        high, low = floods(20, bits, rlwe_run.rng("f"))
        whole = high.astype(np.int64).ravel() * 2**31 + low.astype(np.int64).ravel()
        assert -(2 ** (bits - 1)) <= whole.min() < -0.499 * 2**bits
        assert 0.499 * 2**bits < whole.max() < 2 ** (bits - 1)
        sixteenths = np.bincount((whole >> (bits - 4)) + 8, minlength=16)
        assert ((sixteenths - len(whole) / 16) ** 2 / (len(whole) / 16)).sum() < 44.3  # 15 degrees, 1e-4
        assert abs((whole & 1).mean() - 0.5) < 0.01
    p = PRIMES[2]
    drawn = uniform(p, 80000, rlwe_run.rng("u"))
    assert drawn.max() < p
    cells = np.bincount(drawn.astype(np.int64) * 16 // p, minlength=16)
    assert ((cells - 5000) ** 2 / 5000).sum() < 44.3


def largest_bound(sites: int, threshold: int, count: int) -> int:
    low, high = 1, 2**60
    while low < high:
        middle = (low + high + 1) // 2
        try:
            RlweParameters(sites, threshold, count, middle, 1)
            low = middle
        except PlanError:
            high = middle - 1
    return low


@pytest.mark.parametrize(("sites", "threshold"), [(3, 2), (10, 7), (11, 8), (40, 21)])
def test_sums_of_32_bits_fit_small_consortia_and_less_fits_larger_ones(sites: int, threshold: int) -> None:
    largest = sites * largest_bound(sites, threshold, sites)
    assert (largest >= 2**31) == (threshold <= 7)
    assert largest * threshold > 2**33


def test_what_does_not_fit_is_refused_with_what_would() -> None:
    bound = largest_bound(10, 7, 10)
    with pytest.raises(PlanError, match=f"{10 * bound + 10}") as caught:
        RlweParameters(10, 7, 10, bound + 1, 3)
    assert int(str(caught.value).split("sums up to ")[1].split()[0]) // 10 == bound


@pytest.mark.parametrize("numbers", [
    (10, 5, 10, 1, 1), (10, 11, 10, 1, 1), (1, 1, 1, 1, 1), (5000, 4000, 10, 1, 1), (3, 2, 3, 0, 1), (3, 2, 3, 1, 0),
    (3, 2, 3, 1, 4), (0, 0, 0, 0, 0),
])  # fmt: skip
def test_half_the_sites_or_no_vectors_are_refused(numbers: tuple[int, int, int, int, int]) -> None:
    with pytest.raises(PlanError):
        RlweParameters(*numbers)


@given(sites=st.integers(2, 100), extra=st.integers(0, 99), count=st.integers(1, 100), bits=st.integers(0, 40))
def test_what_is_accepted_cannot_wrap_or_be_misread(sites: int, extra: int, count: int, bits: int) -> None:
    """The inequalities of the module's docstring, from the parameters' own numbers."""
    threshold = min(sites // 2 + 1 + extra, sites)
    try:
        made = RlweParameters(sites, threshold, count, 2**bits, 1)
    except PlanError:
        return
    modulus, dropped = math.prod(made.kept), math.prod(PRIMES) // math.prod(made.kept)
    error = made.count * ETA * (2 * DEGREE * made.sites + 1) + made.threshold * 2 ** (made.flood - 1)
    noise = count + threshold + error / dropped
    assert made.flood >= 55
    assert noise <= made.noise < made.step / 2
    assert made.step * count * 2**bits + noise < modulus / 2
    assert (2 * made.noise + 1) / made.step < 17 / 18


def worst(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every secret 1, every error 21, every flood the smallest: products have coefficients of 4096 x 21 and less."""

    def ones(count: int, _rng: SecretRng) -> Polynomials:
        return np.ones((count, SIDE, SIDE))

    def most(count: int, _rng: SecretRng) -> Polynomials:
        return np.full((count, SIDE, SIDE), float(ETA))

    def least(count: int, bits: int, _rng: SecretRng) -> tuple[Polynomials, Polynomials]:
        return np.full((count, SIDE, SIDE), -(2.0 ** (bits - 32))), np.zeros((count, SIDE, SIDE))

    for module in (rlwe, rlwe_keys):
        monkeypatch.setattr(module, "ternary", ones)
        monkeypatch.setattr(module, "errors", most)
    monkeypatch.setattr(rlwe_threshold, "floods", least)


@pytest.mark.parametrize(("bound", "kept"), [(2**15 - 1, 1), (largest_bound(5, 3, 5), 2)])
def test_the_worst_case_is_read_right(monkeypatch: pytest.MonkeyPatch, bound: int, kept: int) -> None:
    worst(monkeypatch)
    rlwe_run.keys.cache_clear()
    rlwe_run.contributions.cache_clear()
    seen: list[int] = []
    rounded = rlwe_threshold._rounded

    def watched(*args: object) -> object:
        lanes, distance = rounded(*args)  # type: ignore[arg-type]
        seen.append(distance)
        return lanes, distance

    monkeypatch.setattr(rlwe_threshold, "_rounded", watched)
    try:
        run = Run(RlweParameters(5, 3, 5, bound, 3))
        assert len(run.parameters.kept) == kept
        vectors = [np.where(np.arange(4095) % 2, bound, -bound)] * 5
        assert (
            run.open(run.sums.add(run.encrypt(vectors), 4095), run.opening(range(1, 6), 4095)) == 5 * vectors[0]
        ).all()
        assert 0.3 < seen[0] / run.parameters.noise <= 1  # and the budget is no idle number
    finally:
        rlwe_run.keys.cache_clear()
        rlwe_run.contributions.cache_clear()
