"""The transform against the sum that defines it."""

import numpy as np
import pytest
from numpy.typing import NDArray

from consilia.crypto.rlwe_field import Factor
from consilia.crypto.rlwe_ntt import DEGREE, SIDE, transform
from consilia.crypto.rlwe_parameters import PRIMES

each_prime = pytest.mark.parametrize("p", PRIMES)


def root(p: int) -> int:
    return next(psi for base in range(2, 99) if pow(psi := pow(base, (p - 1) // (2 * DEGREE), p), DEGREE, p) == p - 1)


def slow(coefficients: NDArray[np.int64], p: int) -> NDArray[np.int64]:
    """Evaluate at psi^(2k + 1) for every k, one by one; [a, b] holds k = a + 64 b."""
    psi = root(p)
    powers = np.array([pow(psi, k, p) for k in range(2 * DEGREE)])
    n, values = np.arange(DEGREE), np.empty(DEGREE, np.int64)
    for k in range(DEGREE):
        values[k] = (coefficients % p * powers[n * (2 * k + 1) % (2 * DEGREE)] % p).sum() % p
    return values.reshape(SIDE, SIDE).T


@each_prime
@pytest.mark.parametrize("kind", ["random", "largest", "smallest", "alternating"])
def test_it_is_the_sum_that_defines_it(p: int, kind: str) -> None:
    draw = np.random.default_rng(p).integers(0, p, DEGREE)
    half = p // 2
    coefficients = {
        "random": draw, "largest": np.full(DEGREE, half), "smallest": np.full(DEGREE, -half),
        "alternating": np.where(draw % 2, half, -half),
    }[kind]  # fmt: skip
    ntt = transform(p)
    x = ntt.prime.centred(coefficients).reshape(1, SIDE, SIDE)
    transformed = ntt.forward(x)
    assert (ntt.prime.residues(transformed)[0] == slow(coefficients, p)).all()
    assert (ntt.prime.residues(ntt.inverse(transformed)) == coefficients.reshape(1, SIDE, SIDE) % p).all()


@each_prime
def test_small_polynomials_take_the_short_way(p: int) -> None:
    small = np.random.default_rng(1).integers(-(2**16) + 1, 2**16, (3, SIDE, SIDE)).astype(float)
    ntt = transform(p)
    assert (ntt.prime.residues(ntt.forward_small(small)) == ntt.prime.residues(ntt.forward(small))).all()


@each_prime
def test_a_product_of_transforms_is_the_product_modulo_x_to_the_n_plus_1(p: int) -> None:
    ntt, draw = transform(p), np.random.default_rng(2)
    f, g = draw.integers(0, p, DEGREE), draw.integers(-1, 2, DEGREE)
    long = np.zeros(2 * DEGREE, np.int64)
    for place in np.flatnonzero(g):
        long[place : place + DEGREE] += g[place] * f
    slow_product = (long[:DEGREE] - long[DEGREE:]) % p
    x, y = (ntt.prime.centred(h).reshape(1, SIDE, SIDE) for h in (f, g))
    product = ntt.inverse(ntt.prime.times(ntt.forward(x), Factor(ntt.forward_small(y))))
    assert (ntt.prime.residues(product).ravel() == slow_product).all()


@each_prime
def test_reduction_is_exact_to_the_ends_of_its_range(p: int) -> None:
    prime = transform(p).prime
    ends = [2**52 - 1, 2**52 - 2, 2**51, p, p // 2, p // 2 + 1, (2**52 // p) * p, (2**52 // p) * p - 1, 0]
    numbers = np.array([sign * end for end in ends for sign in (1, -1)])
    reduced = prime.reduce(numbers.astype(float))
    assert np.abs(reduced).max() <= p / 2 + 1
    assert ((reduced.astype(np.int64) - numbers) % p == 0).all()
