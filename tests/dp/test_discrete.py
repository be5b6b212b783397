"""The integer noise has exactly the law it claims, on the usual path and where 64 bits do not decide."""

import math
import time
from decimal import Context, Decimal
from itertools import accumulate

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from consilia.core.errors import PlanError
from consilia.core.randomness import SecretRng
from consilia.dp.discrete import VARIANCE, discrete_gaussian, reach
from consilia.dp.discrete_exact import Blocks

DRAWS = 400_000


def rng(number: int = 0) -> SecretRng:
    return SecretRng(number.to_bytes(32, "big"))


def law(variance: float, top: int) -> NDArray[np.float64]:
    x = np.arange(-top, top + 1)
    mass = np.exp(-(x**2) / (2 * variance))
    return np.asarray(mass / mass.sum(), dtype=np.float64)


def fit(draws: NDArray[np.int64], variance: float) -> float:
    """Return the p-value of a chi-square test against the law of this variance; rare values count together."""
    top = int(3.5 * math.sqrt(variance)) + 1
    mass = law(variance, 20 * top)
    middle = mass[19 * top : 21 * top + 1]
    expected = np.append(middle, 1 - middle.sum()) * draws.size
    inside = np.abs(draws) <= top
    seen = np.append(np.bincount(draws[inside] + top, minlength=2 * top + 1), (~inside).sum())
    return float(stats.chisquare(seen, expected).pvalue)


@pytest.mark.parametrize("variance", [1, 2, 9, 255, 256, 300, 5000])
def test_the_law_is_exact_and_a_tenth_less_is_seen(variance: int) -> None:
    draws = discrete_gaussian(variance, DRAWS, rng(variance))
    assert fit(draws, variance) > 1e-3
    assert fit(draws, variance / 1.21) < 1e-6


@pytest.mark.parametrize("variance", [1, 300, 10**6, 12_345_678_901, VARIANCE[1]])
def test_moments_and_symmetry(variance: int) -> None:
    x = discrete_gaussian(variance, DRAWS, rng(1)) / math.sqrt(variance)
    exact = float((law(variance, 30) * np.arange(-30, 31) ** 2).sum()) if variance == 1 else 1.0
    assert x.var() == pytest.approx(exact, abs=5 * math.sqrt(2 / DRAWS))
    assert abs(x.mean()) < 5 / math.sqrt(DRAWS)
    assert (x**4).mean() / x.var() ** 2 == pytest.approx(3.0, abs=5 * math.sqrt(24 / DRAWS))
    assert abs((x > 0).mean() - (x < 0).mean()) < 5 / math.sqrt(DRAWS)


@pytest.mark.parametrize("variance", [12_345_678_901, VARIANCE[1]])
def test_large_variances_keep_their_shape_to_the_last_digit(variance: int) -> None:
    draws = discrete_gaussian(variance, DRAWS, rng(2))
    assert stats.kstest(draws / math.sqrt(variance), "norm").pvalue > 1e-3
    assert stats.kstest(draws / (math.sqrt(variance) / 1.1), "norm").pvalue < 1e-6
    assert stats.chisquare(np.bincount(draws & 255, minlength=256)).pvalue > 1e-3  # all residues are as likely


def test_equal_streams_give_equal_numbers() -> None:
    first = discrete_gaussian(10**6, 1000, rng(3))
    assert (first == discrete_gaussian(10**6, 1000, rng(3))).all()
    assert (first != discrete_gaussian(10**6, 1000, rng(4))).any()
    assert discrete_gaussian(9, 0, rng(3)).shape == (0,)


@pytest.mark.parametrize("variance", [0, -1, VARIANCE[1] + 1])
def test_variances_out_of_range_are_refused(variance: int) -> None:
    with pytest.raises(PlanError, match="a variance from 1"):
        discrete_gaussian(variance, 1, rng())


def test_a_sum_of_shares_stays_within_reach() -> None:
    for variance, shares in ((1, 3), (10**6, 10)):
        total = sum(discrete_gaussian(variance, 100_000, rng(i)) for i in range(shares))
        bound = reach(variance, shares, 100_000)
        assert 4 * math.sqrt(shares * variance) < np.abs(total).max() < bound < 10 * math.sqrt(shares * variance)


# Where 64 bits do not decide.


class Scripted(SecretRng):
    """A stream of one first candidate, others like a second one, and then the same byte for ever."""

    def __init__(self, then: int, candidate: tuple[int, int] = (0, 0), others: tuple[int, int] = (0, 0)) -> None:
        super().__init__(bytes(32))
        self.then, self.candidate, self.others, self.more = then, candidate, others, 0

    def token(self, size: int) -> bytes:
        if size == 8:
            self.more += 1
            return bytes([self.then]) * 8
        half = zip(self.candidate, self.others, strict=True)
        return b"".join(
            one.to_bytes(8, "little") + other.to_bytes(8, "little") * (size // 16 - 1) for one, other in half
        )


def exact(numerator: int, denominator: int) -> Decimal:
    context = Context(prec=90)
    return context.exp(context.divide(Decimal(-numerator), Decimal(denominator)))


def chance_word(numerator: int, denominator: int) -> int:
    return int(Context(prec=90).multiply(exact(numerator, denominator), Decimal(2**62)))


def cumulative(variance: int, width: int) -> list[Decimal]:
    heights, context = [exact((j * width) ** 2, 2 * variance) for j in range(400)], Context(prec=90)
    sums = list(accumulate(heights, context.add))
    return [context.divide(part, sums[-1]) for part in sums]


@pytest.mark.parametrize("variance", [9, 300])
def test_edges_are_floors_of_the_exact_law(variance: int) -> None:
    width = 1 if variance == 9 else 2
    edges = Blocks(variance, width).edges(64)
    assert edges[-1] == 2**64 - 1
    context = Context(prec=90)
    assert edges == [int(context.multiply(p, Decimal(2**64))) for p in cumulative(variance, width)][: len(edges)]


@pytest.mark.parametrize("j", [0, 1, 5, 12])
def test_a_word_on_an_edge_is_decided_by_further_bits(j: int) -> None:
    blocks = Blocks(9, 1)
    edge = blocks.edges(64)[j]
    for then, expected in ((0, j), (255, j + 1)):
        stream = Scripted(then)
        assert blocks.block(edge, 64, stream) == expected
        assert stream.more == 1


def test_beyond_the_last_known_block_the_tail_goes_on() -> None:
    blocks, context = Blocks(9, 1), Context(prec=90)
    tails = [context.subtract(Decimal(1), p) for p in cumulative(9, 1)]
    far = blocks.block(2**128 - 1, 128, Scripted(0))
    assert far > len(blocks.edges(64))
    assert tails[far] <= Decimal(2) ** -128 <= tails[far - 1]


@pytest.mark.parametrize(("j", "r"), [(0, 1), (7, 1), (40, 1)])
def test_a_chance_too_close_to_tell_in_doubles_is_decided_exactly(j: int, r: int) -> None:
    blocks, numerator = Blocks(300, 2), r * (2 * j * 2 + r)
    word = chance_word(numerator, 600)
    for then, expected in ((0, True), (255, False)):
        assert blocks.keeps(numerator, word, 62, Scripted(then)) is expected
    assert blocks.keeps(numerator, word - 1, 62, Scripted(0))
    assert not blocks.keeps(numerator, word + 1, 62, Scripted(0))


# A candidate of variance 300 is a block word, and an acceptance word over a bit for the place and one for the sign.
PLUS_TWO = (Blocks(300, 2).edges(64)[1] - 1, 0)


@pytest.mark.parametrize(("then", "expected"), [(0, -15), (255, -17)])
def test_the_sampler_asks_for_more_bits_of_a_block(then: int, expected: int) -> None:
    stream = Scripted(then, (Blocks(300, 2).edges(64)[7], 0b11), PLUS_TWO)
    assert discrete_gaussian(300, 2, stream).tolist() == [expected, 2]
    assert stream.more == 1


@pytest.mark.parametrize(("then", "expected"), [(0, -15), (255, 2)])
def test_the_sampler_asks_for_more_bits_of_a_chance(then: int, expected: int) -> None:
    word = chance_word(2 * 14 + 1, 600) << 2 | 0b11
    stream = Scripted(then, (Blocks(300, 2).edges(64)[7] - 1, word), PLUS_TWO)
    assert discrete_gaussian(300, 2, stream).tolist() == [expected, 2]
    assert stream.more == 1


def test_drawing_every_bit_by_the_exact_path_has_the_law_too() -> None:
    stream, variance, width = rng(7), 300, 2
    blocks, half = Blocks(variance, width), []
    for byte in stream.token(30_000):
        j, r = blocks.block(0, 0, stream), byte & 1
        if blocks.keeps(r * (2 * j * width + r), 0, 0, stream) and (j or r or byte & 2):
            half.append((j * width + r) * (1 if byte & 2 else -1))
    draws = np.array(half)
    assert fit(draws, variance) > 1e-3
    assert fit(draws, variance / 1.21) < 1e-6


def test_a_million_numbers_take_less_than_half_a_second_of_one_thread() -> None:
    discrete_gaussian(10**8, 10, rng())
    start = time.process_time()
    discrete_gaussian(10**8, 10**6, rng())
    assert time.process_time() - start < 0.5  # 0.05 when it was written
