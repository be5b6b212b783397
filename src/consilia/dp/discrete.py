"""The discrete Gaussian on the integers, drawn from its exact law.

The law of variance parameter v puts mass proportional to exp(-x^2 / 2v) on every integer x. |x| = j m + r is drawn by
rejection: the block j with probability proportional to h_j = exp(-(j m)^2 / 2v), r uniform below m, a sign; then it is kept with
probability exp(-(x^2 - (j m)^2) / 2v), and "minus zero" never. What is kept has the law. Both decisions compare a uniform number
with an irrational one: first on some bits of it, and where these do not tell, on as many more as it takes, in decimal
arithmetic with proved brackets (`dp.discrete_exact`). No decision rests on a rounded number.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from consilia.core.errors import PlanError
from consilia.core.randomness import SecretRng
from consilia.dp.discrete_exact import Blocks

VARIANCE = (1, 10**16)
"""Smallest and largest variance that is drawn."""

# Blocks of width m, the largest power of two up to sigma / 8 (1 where sigma < 16): then sigma / m is in [8, 16) or below 16.
_FINE = 8
_CHUNK = 1 << 15  # candidates at a time: what is in between stays in the processor's cache
_WORD = 64
# A quotient of integers in doubles, its exp (numpy states 4 units in the last place) and two conversions are together off by
# less than 2^-49 of the value where the argument is at most 3, as it is here; 8 times that is taken.
_OFF = 2.0**-46


@dataclass(frozen=True)
class _Table:
    """What drawing from one variance needs.

    Attributes:
        blocks: The exact law of the blocks.
        edges: floor(2^64 P(block <= j)), shape (blocks,): a word below it is in block j or before, a word equal to it may be.
        squeeze: What an acceptance word is below that is kept in any place of block j, shape (blocks + 1,); the last is 0.
        shift: log2 of m.
        rate: Share of candidates that are kept.
    """

    blocks: Blocks
    edges: NDArray[np.uint64]
    squeeze: NDArray[np.uint64]
    shift: int
    rate: float


@lru_cache(maxsize=32)
def _table(variance: int) -> _Table:
    shift = max(0, math.isqrt(variance).bit_length() - 1 - (_FINE.bit_length() - 1))
    while shift and (_FINE << shift) ** 2 > variance:
        shift -= 1
    width = 1 << shift
    blocks = Blocks(variance, width)
    edges = np.array(blocks.edges(_WORD), dtype=np.uint64)
    j = np.arange(edges.size, dtype=np.float64)
    # 2^-40 below the least chance of the block, which also covers the rounding here.
    least = np.exp(-(width - 1.0) * (2.0 * j * width + width - 1.0) / (2.0 * variance)) * (1.0 - 2.0**-40)
    squeeze = np.floor(np.append(least, 0.0) * 2.0 ** (_WORD - 1 - shift)).astype(np.uint64)
    total = float(np.exp(-((j * width) ** 2) / (2.0 * variance)).sum()) * 2.0 * width
    return _Table(blocks, edges, squeeze, shift, math.sqrt(2.0 * math.pi * variance) / total)


def discrete_gaussian(variance: int, size: int, rng: SecretRng) -> NDArray[np.int64]:
    """Return independent discrete Gaussians of this variance parameter, shape (size,).

    Args:
        variance: sigma^2, an integer from 1 to 1e16. The variance of the draws is at most that, and equal to within 1e-6 of it.
        size: How many.
        rng: Secret randomness; the same stream gives the same numbers.

    Raises:
        PlanError: If the variance is out of range.

    Guarantees:
        If the stream's bytes are uniform, each number x has probability exactly exp(-x^2 / 2 variance) / sum over integers,
        independently of the others (conditioned on |x| < 2^63, which has probability above 1 - exp(-10^21)).

    Source:
        The law: Canonne, Kamath and Steinke (2020), The discrete Gaussian for differential privacy, definition 1. Rejection
        from a staircase in place of their discrete Laplace, because all numbers of a vector then take the same steps.
    """
    if not VARIANCE[0] <= variance <= VARIANCE[1]:
        raise PlanError.of("integer noise", needs=f"a variance from {VARIANCE[0]} to {VARIANCE[1]:.0e}", got=variance,
                           hint="Change the grid's scale")  # fmt: skip
    table = _table(variance)
    out = np.empty(size, dtype=np.int64)
    done = 0
    while done < size:
        wanted = min(size - done, _CHUNK)
        kept = _candidates(table, int(wanted / table.rate * 1.01) + 16, rng)[:wanted]
        out[done : done + kept.size] = kept
        done += kept.size
    return out


def reach(variance: int, shares: int, dim: int) -> int:
    """Return what the sum of `shares` draws stays below on all of `dim` coordinates, but for a chance of 2^-40.

    Source:
        Canonne, Kamath and Steinke (2020), lemma 8: a discrete Gaussian is sub-Gaussian with its own variance parameter.
    """
    return math.ceil(math.sqrt(2.0 * shares * variance * (math.log(2.0 * dim) + 40.0 * math.log(2.0))))


def _candidates(table: _Table, count: int, rng: SecretRng) -> NDArray[np.int64]:
    """Return those of `count` candidates that are kept, in their order."""
    words = np.frombuffer(rng.token(16 * count), dtype="<u8")
    first, second = words[:count], words[count:]
    known, bits = table.edges.size, _WORD - 1 - table.shift
    # Edges up to the word: those blocks it is beyond, but for an edge that equals it.
    block = np.searchsorted(table.edges, first, side="right")
    for i in np.flatnonzero(table.edges[block - 1] == first):
        block[i] = table.blocks.block(int(first[i]), _WORD, rng)
    negative = (second & np.uint64(1)).astype(bool)
    within = ((second >> np.uint64(1)) & np.uint64((1 << table.shift) - 1)).astype(np.int64)
    chance = second >> np.uint64(1 + table.shift)
    # Beyond the known blocks the squeeze is 0: nothing is kept without a look.
    kept = chance < table.squeeze[np.minimum(block, known)]
    look = np.flatnonzero(~kept)
    # At most sigma / 8 x 20 sigma in the known blocks: far below 2^63.
    exponent = within[look] * (2 * (block[look] << table.shift) + within[look])
    least = np.exp(exponent / (-2.0 * table.blocks.variance)) * 2.0**bits
    word = chance[look].astype(np.float64)
    yes, no = word + 1.0 <= least * (1.0 - _OFF), word >= least * (1.0 + _OFF)
    kept[look] = yes
    for i in look[~(yes | no) | (block[look] >= known)]:
        r = int(within[i])
        kept[i] = table.blocks.keeps(r * (2 * (int(block[i]) << table.shift) + r), int(chance[i]), bits, rng)
    size = (block << table.shift) + within
    kept &= ~negative | (size > 0)
    found: NDArray[np.int64] = np.where(negative, -size, size)[kept]
    return found
