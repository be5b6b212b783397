"""Arithmetic modulo primes of 30 bits in doubles, exact: every value is an integer below 2^53.

Doubles rather than integers, because then a transform is a product of matrices (see `rlwe_ntt`).
"""

import numpy as np
from numpy.typing import NDArray

Polynomials = NDArray[np.float64]  # (..., 64, 64) integers, most often centred residues
Residues = NDArray[np.uint32]

_LIMB = 2.0**15


class Factor:
    """Constants to multiply by, as high x 2^15 + low with both halves at most 2^14 in absolute value."""

    def __init__(self, centred: Polynomials) -> None:
        self.high = np.rint(centred / _LIMB)
        self.low = centred - self.high * _LIMB


class Prime:
    """The integers modulo a prime p < 2^30, as centred residues: of absolute value at most p / 2 + 1.

    No branch and no address depends on a value.
    """

    def __init__(self, p: int) -> None:
        self.p = p
        self._inverse = 1.0 / p

    def reduce(self, x: Polynomials) -> Polynomials:
        """Bring integers below 2^52 in absolute value to centred residues, in place.

        The quotient is off by at most 2^-30 before it is rounded, and its product with p is an integer below 2^53.
        """
        quotient = x * self._inverse
        np.rint(quotient, out=quotient)
        quotient *= self.p
        x -= quotient
        return x

    def join(self, high: Polynomials, low: Polynomials) -> Polynomials:
        """Return high x 2^15 + low, reduced, of integers below 2^51; overwrites `high`."""
        self.reduce(high)
        high *= _LIMB
        high += low
        return self.reduce(high)

    def times(self, x: Polynomials, factor: Factor) -> Polynomials:
        """Return x times constants, reduced; |x| < 2^36."""
        return self.join(x * factor.high, x * factor.low)

    def centred(self, residues: NDArray[np.integer]) -> Polynomials:
        """Return integers below 2^52 in absolute value as centred residues."""
        return self.reduce(residues.astype(np.float64))

    def residues(self, x: Polynomials) -> Residues:
        """Return centred residues as integers in [0, p)."""
        wide = x + (x < 0) * float(self.p)
        return wide.astype(np.uint32)

    def factor(self, value: int) -> Factor:
        """Return a number, reduced, to multiply by."""
        residue = value % self.p
        return Factor(np.array(float(residue - self.p * (2 * residue > self.p))))
