"""Comparisons of a uniform number with exp(-a / b), or with sums of such, that are right whatever the digits.

A uniform number is known by its first bits; more are drawn until it lies outside the bracket of what it is compared with.
Sums are integers in units of 10^-D. With D + 2 digits, decimal arithmetic rounds the quotient q correctly and exp(-q) too, so
exp(-q) is off by at most (q + 1) exp(-q) 10^(-1-D) (1 + tiny), below 0.2 units for every q >= 0: with H = floor of it, the true
value lies in [H - 1, H + 2] units.
"""

from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from functools import lru_cache
from itertools import accumulate

from consilia.core.randomness import SecretRng

_MORE = 64  # bits drawn at a time
_BELOW, _ABOVE = 1, 2  # by how much a floor may be above, or below, the true value


def _units(numerator: int, denominator: int, digits: int) -> int:
    """Return floor(10^digits exp(-numerator / denominator)), off by the bracket above."""
    context = Context(prec=digits + 2, Emax=MAX_EMAX, Emin=MIN_EMIN)
    power = context.exp(context.divide(Decimal(-numerator), Decimal(denominator)))
    return int(power.scaleb(digits, context=context))


def _digits(bits: int) -> int:
    return bits * 302 // 1000 + 12  # ten digits finer than the last bit


@dataclass(frozen=True)
class Blocks:
    """Blocks j = 0, 1, .. of probability proportional to h_j = exp(-(j width)^2 / 2 variance).

    Attributes:
        variance: v.
        width: m, an integer above sigma / 16.
    """

    variance: int
    width: int

    def edges(self, bits: int) -> list[int]:
        """Return floor(2^bits P(block <= j)) for j = 0, 1, .. up to the first that is 2^bits - 1."""
        digits = 2 * _digits(bits)
        while True:
            low, high, least, most = _brackets(self.variance, self.width, digits)
            found = []
            for at_least, at_most in zip(low, high, strict=True):
                edge = (at_least << bits) // most
                if edge != (at_most << bits) // least:
                    break  # too few digits to tell
                found.append(edge)
                if edge == (1 << bits) - 1:
                    return found
            digits *= 2

    def block(self, word: int, bits: int, rng: SecretRng) -> int:
        """Return the block of a uniform number in [word, word + 1) / 2^bits, whose further bits are drawn here."""
        while True:
            low, high, least, most = _brackets(self.variance, self.width, _digits(bits))
            for j, (at_least, at_most) in enumerate(zip(low, high, strict=True)):
                if (word + 1) * most <= at_least << bits:
                    return j
                if word * least < at_most << bits:
                    break  # neither below the edge for sure, nor beyond it
            word, bits = _longer(word, bits, rng)

    def keeps(self, numerator: int, word: int, bits: int, rng: SecretRng) -> bool:
        """Say whether a uniform number in [word, word + 1) / 2^bits is below exp(-numerator / 2 variance)."""
        while numerator:
            digits = _digits(bits)
            chance, one = _units(numerator, 2 * self.variance, digits), 10**digits
            if (word + 1) * one <= (chance - _BELOW) << bits:
                return True
            if word * one >= (chance + _ABOVE) << bits:
                return False
            word, bits = _longer(word, bits, rng)
        return True


@lru_cache(maxsize=64)
def _brackets(variance: int, width: int, digits: int) -> tuple[list[int], list[int], int, int]:
    heights: list[int] = []
    while not heights or heights[-1]:
        heights.append(_units((len(heights) * width) ** 2, 2 * variance, digits))
    # At the first height J of less than a unit, J width > 4 sigma. From there each height is at most exp(-1/4) times the one
    # before, because width > sigma / 16: together they are below 5 h_J, and h_J is below 2 units.
    sums, count = list(accumulate(heights)), len(heights)
    low = [total - _BELOW * (j + 1) for j, total in enumerate(sums)]
    high = [total + _ABOVE * (j + 1) for j, total in enumerate(sums)]
    return low, high, sums[-1] - _BELOW * count, sums[-1] + _ABOVE * count + 10


def _longer(word: int, bits: int, rng: SecretRng) -> tuple[int, int]:
    return (word << _MORE) | int.from_bytes(rng.token(_MORE // 8), "little"), bits + _MORE
