"""The laws of the scheme: uniform residues, ternary secrets, small errors, floods. Each is drawn exactly.

Where candidates are thrown away, what is kept is independent of how many were: the time says nothing about it.
"""

import numpy as np

from consilia.core.randomness import SecretRng
from consilia.crypto.rlwe_field import Polynomials, Residues
from consilia.crypto.rlwe_ntt import SIDE
from consilia.crypto.rlwe_parameters import ETA

_WORD = np.uint64


def uniform(p: int, size: int, rng: SecretRng) -> Residues:
    """Return `size` uniform residues modulo p, 2^29 < p < 2^30, shape (size,)."""
    found = np.empty(0, np.uint32)
    while len(found) < size:
        words = np.frombuffer(rng.token(4 * size), "<u4") & np.uint32((1 << 30) - 1)
        found = np.concatenate([found, words[words < p]])
    return found[:size]


def ternary(count: int, rng: SecretRng) -> Polynomials:
    """Return `count` polynomials with coefficients uniform in -1, 0, 1, shape (count, 64, 64)."""
    size = count * SIDE * SIDE
    found = np.empty(0, np.uint8)
    while len(found) < size:
        drawn = np.frombuffer(rng.token(size + size // 32), np.uint8)
        found = np.concatenate([found, drawn[drawn < 252]])  # 252 = 3 x 84
    octets = found[:size].astype(np.uint16)
    octets -= 3 * ((171 * octets) >> 9)  # the remainder by 3: a product, since the time of a division may depend on it
    return octets.astype(np.float64).reshape(count, SIDE, SIDE) - 1.0


def errors(count: int, rng: SecretRng) -> Polynomials:
    """Return `count` polynomials of the centred binomial law with eta = 21, shape (count, 64, 64).

    The difference of two sums of 21 bits has the law of a sum of 42 bits less 21: the second bits may be turned round.
    """
    words = np.frombuffer(rng.token(8 * count * SIDE * SIDE), "<u8") & _WORD((1 << 2 * ETA) - 1)
    words -= (words >> _WORD(1)) & _WORD(0x5555555555555555)  # sums of 2 bits, then 4, then 8, then all
    words = (words & _WORD(0x3333333333333333)) + ((words >> _WORD(2)) & _WORD(0x3333333333333333))
    words = (words + (words >> _WORD(4))) & _WORD(0x0F0F0F0F0F0F0F0F)
    words = (words * _WORD(0x0101010101010101)) >> _WORD(56)
    return words.astype(np.float64).reshape(count, SIDE, SIDE) - float(ETA)


def floods(count: int, bits: int, rng: SecretRng) -> tuple[Polynomials, Polynomials]:
    """Return (high, low) with high x 2^31 + low uniform in [-2^(bits - 1), 2^(bits - 1)), each of shape (count, 64, 64).

    In halves, because doubles hold 53 bits; low is in [0, 2^31).
    """
    words = np.frombuffer(rng.token(8 * count * SIDE * SIDE), "<u8").reshape(count, SIDE, SIDE)
    high = (words >> _WORD(31)) & _WORD((1 << (bits - 31)) - 1)
    return high.astype(np.float64) - 2.0 ** (bits - 32), (words & _WORD((1 << 31) - 1)).astype(np.float64)
