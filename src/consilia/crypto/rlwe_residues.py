"""Integers modulo products of primes, one residue a prime."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consilia.crypto.rlwe_field import Polynomials, Residues
from consilia.crypto.rlwe_ntt import transform
from consilia.crypto.rlwe_parameters import PRIMES


def modulo(total: NDArray[np.uint64], primes: Sequence[int]) -> Residues:
    """Return sums of residues, shape (primes, ...), as residues. In integers, so for public numbers only."""
    return np.stack([(part % np.uint64(p)).astype(np.uint32) for part, p in zip(total, primes, strict=True)])


def quotient(polynomials: list[Polynomials], kept: int) -> list[Polynomials]:
    """Return the quotient of integers modulo q by the dropped primes, rounded to within 1, modulo the kept ones.

    One prime p at a time: x less its centred residue modulo p is a multiple of p, and is divided by it modulo the others.

    Args:
        polynomials: Centred residues modulo each of `PRIMES`, coefficients; errors may have been added to them.
        kept: How many of the last primes stay.
    """
    primes, rest = list(PRIMES), list(polynomials)
    while len(rest) > kept:
        dropped, lowest = primes.pop(0), rest.pop(0)
        for place, p in enumerate(primes):
            prime = transform(p).prime
            rest[place] = prime.times(rest[place] - lowest, prime.factor(pow(dropped, -1, p)))
    return rest
