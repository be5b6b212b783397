"""The number-theoretic transform of degree 4096 as two products with matrices of 64 x 64.

A polynomial of Z_p[X] / (X^4096 + 1) has coefficient 64 i + j at [i, j]; its transform has the value at psi^(2k + 1),
k = a + 64 b, at [a, b], psi being of order 8192. Since psi^(64 x 128) = 1 the sum splits:

    X[a, b] = sum_j psi^(128 j b) psi^(j (2a + 1)) sum_i psi^(64 i (2a + 1)) x[i, j].

Each matrix is kept as two halves of 15 bits: a sum of 64 products of a residue (30 bits) with a half (14 bits and a sign)
stays below 2^50, so BLAS adds it exactly, in whatever order. The same steps run for every input.

Source:
    Gentleman and Sande (1966), Fast Fourier transforms for fun and profit (the four-step form); Pollard (1971), The fast
    Fourier transform in a finite field.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from consilia.crypto.rlwe_field import Factor, Polynomials, Prime

SIDE = 64
DEGREE = SIDE * SIDE
GROUP = 8  # polynomials to work on at a time: what is in between stays in the processor's cache


class Transform:
    """The transform modulo one prime p = 1 mod 8192, and its inverse."""

    def __init__(self, p: int) -> None:
        self.prime = Prime(p)
        psi = next(
            root for base in range(2, p) if pow(root := pow(base, (p - 1) // (2 * DEGREE), p), DEGREE, p) == p - 1
        )
        powers = np.array([pow(psi, k, p) for k in range(2 * DEGREE)])
        i, odd = np.arange(SIDE), 2 * np.arange(SIDE) + 1
        first, twist, second = SIDE * np.outer(odd, i), np.outer(odd, i), 2 * SIDE * np.outer(i, i)

        def table(exponents: NDArray[np.int64]) -> Polynomials:
            return self.prime.centred(powers[exponents % (2 * DEGREE)])

        whole = table(first)
        self._first_whole, self._first, self._second = whole, halves(whole, 0), halves(table(second), 1)
        self._twist = Factor(table(twist))
        self._middle, self._last = halves(table(-second), 1), halves(table(-first.T), 0)
        shrink = self.prime.factor(pow(DEGREE, -1, p))  # the inverse divides by the degree, once
        self._untwist = Factor(self.prime.times(table(-twist), shrink))

    def forward(self, x: Polynomials) -> Polynomials:
        """Return the transforms of polynomials of centred residues, shape (n, 64, 64)."""
        products = self._first @ x
        return self._finish(self.prime.join(products[:, :SIDE], products[:, SIDE:]))

    def forward_small(self, x: Polynomials) -> Polynomials:
        """Return the transforms of polynomials whose coefficients are below 2^16 in absolute value, in less time."""
        return self._finish(self.prime.reduce(self._first_whole @ x))

    def _finish(self, columns: Polynomials) -> Polynomials:
        products = self.prime.times(columns, self._twist) @ self._second
        return self.prime.join(products[..., :SIDE], products[..., SIDE:])

    def inverse(self, x: Polynomials) -> Polynomials:
        """Return the polynomials that have these transforms (centred residues), shape (n, 64, 64)."""
        products = x @ self._middle
        rows = self.prime.join(products[..., :SIDE], products[..., SIDE:])
        products = self._last @ self.prime.times(rows, self._untwist)
        return self.prime.join(products[:, :SIDE], products[:, SIDE:])


def halves(matrix: Polynomials, axis: int) -> Polynomials:
    """Return the high and the low half of a matrix side by side, so that one product serves for both."""
    factor = Factor(matrix)
    return np.concatenate([factor.high, factor.low], axis=axis)


@cache
def transform(p: int) -> Transform:
    """Return the transform modulo p; its tables are made once."""
    return Transform(p)
