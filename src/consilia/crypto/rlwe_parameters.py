"""What a threshold sum by ring learning with errors can hold, and why it is never wrong.

Write N for the degree, q = p_1 p_2 p_3, eta for the largest error, n for the sites, t for the decrypters, K for the most
vectors in a sum and B for the bound of a coordinate. Each secret s_i and each u of an encryption is ternary, each error at
most eta. A ciphertext is (u b + e_0 + D step m, u a + e_1) with b = sum_i (e_i - a s_i), so that

    c_0 + c_1 s = D step m + u sum_i e_i + e_0 + e_1 sum_i s_i,

whose error is at most 2 N n eta + eta; a sum of K has at most K times that (`fresh`). Each partial decryption adds a flood,
uniform in [-2^(f-1), 2^(f-1)). What is sent of c_0 and of partial decryptions is their quotient by D, the product of the
primes that are dropped, rounded: an error of at most 1 each, in units of D. So the opened integer modulo Q = q / D is

    step M + nu,  |M| <= K B =: S,  |nu| <= K + t + ceil((fresh + t 2^(f-1)) / D) =: noise.

It does not wrap since step = floor(Q / (2 S + 1)), and M is its nearest multiple of step since step > 2 noise. More is asked for,
step >= 2 noise + noise // 8 + 2, so that a coefficient that is uniform modulo Q lies too far from every multiple with a
chance of at least 1 in 18: see `rlwe_threshold.combine`.

Guarantees:
    The step, the flood and the primes kept follow from the four numbers of the plan alone, and a sum that could wrap or be
    rounded wrongly is refused before anything is sent. The bounds are for the worst case, not for the likely one.
    128 bits of security against classical attacks for each secret: N = 4096 with log2 q = 90 <= 109, ternary secrets, an
    error of standard deviation sqrt(21 / 2) = 3.24 >= 8 / sqrt(2 pi) = 3.19.

Source:
    Albrecht et al. (2018), Homomorphic encryption security standard, table 1 (ternary secret, classical, 128 bits).
    Mouchet, Troncoso-Pastoriza, Bossuat and Hubaux (2021), Multiparty homomorphic encryption from
    ring-learning-with-errors: the joint key and the flooded partial decryptions.
"""

import math
from dataclasses import dataclass
from functools import cached_property

from consilia.core.errors import PlanError
from consilia.crypto.rlwe_ntt import DEGREE

PRIMES = (1073692673, 1073668097, 1073651713)  # the three largest below 2^30 that are 1 mod 8192
ETA = 21  # an error is the difference of two sums of 21 bits
LEAST_FLOOD, MOST_FLOOD = 55, 62  # bits


@dataclass(frozen=True)
class RlweParameters:
    """The numbers of the plan, and what follows from them.

    Attributes:
        sites: Holders of the key, n.
        threshold: How many of them open a sum, t: no fewer can, and the rule takes exactly as many.
        count: Largest number of vectors in a sum, K.
        bound: Largest absolute value of a coordinate of one vector, B.
        fewest: Smallest number of vectors in a sum that a site helps to open.

    Raises:
        PlanError: If sums do not fit, or if the sites without those that open one sum could open another.
    """

    sites: int
    threshold: int
    count: int
    bound: int
    fewest: int

    def __post_init__(self) -> None:
        majority = self.sites // 2 + 1
        if not (
            majority <= self.threshold <= self.sites < DEGREE and 1 <= self.fewest <= self.count and self.bound >= 1
        ):
            raise PlanError.of(
                "threshold RLWE",
                needs=f"at most {DEGREE - 1} sites, more than half of them as the threshold, 1 <= fewest <= count vectors and a "
                "bound of at least 1",
                got=f"{self.sites} sites, threshold {self.threshold}, {self.fewest} to {self.count} vectors, bound {self.bound}",
                hint="Two sets of half the sites could open two sums of one round",
            )
        if self.threshold < 2:
            raise PlanError.of(
                "threshold RLWE", needs="two sites or more", got="one", hint="It would hold the whole key"
            )
        if not self._fits(2, LEAST_FLOOD):
            raise PlanError.of(
                "threshold RLWE", needs=f"sums up to {self._largest} in absolute value for {self.threshold} decrypters",
                got=f"{self.count} vectors of values up to {self.bound}, whose sums reach {self.largest}",
                hint="Plan for a smaller range, a coarser resolution or a lower threshold",
            )  # fmt: skip

    @property
    def largest(self) -> int:
        """Largest absolute value of a coordinate of a sum, S."""
        return self.count * self.bound

    @property
    def fresh(self) -> int:
        """Largest error of a sum before it is opened."""
        return self.count * (2 * DEGREE * self.sites * ETA + ETA)

    @cached_property
    def choice(self) -> tuple[int, int]:
        """How many primes of c_0 and of partial decryptions are sent, and the bits of a flood: few primes, then many bits."""
        floods = range(MOST_FLOOD, LEAST_FLOOD - 1, -1)
        return next((kept, flood) for kept in (1, 2) for flood in floods if self._fits(kept, flood))

    @property
    def kept(self) -> tuple[int, ...]:
        """The primes that are sent: the last one or two."""
        return PRIMES[-self.choice[0] :]

    @property
    def flood(self) -> int:
        """Bits of a flood, f."""
        return self.choice[1]

    @property
    def step(self) -> int:
        """What one unit of a value is worth modulo the primes that are kept."""
        return math.prod(self.kept) // (2 * self.largest + 1)

    @property
    def noise(self) -> int:
        """Largest distance of an opened integer from its multiple of `step`."""
        return self._noise(*self.choice)

    def _noise(self, kept: int, flood: int) -> int:
        dropped = math.prod(PRIMES[:-kept])
        return self.count + self.threshold - (-(self.fresh + self.threshold * (1 << (flood - 1))) // dropped)

    def _needed(self, kept: int, flood: int) -> int:
        noise = self._noise(kept, flood)
        return 2 * noise + noise // 8 + 2

    def _fits(self, kept: int, flood: int) -> bool:
        return math.prod(PRIMES[-kept:]) // (2 * self.largest + 1) >= self._needed(kept, flood)

    @property
    def _largest(self) -> int:
        return (math.prod(PRIMES[-2:]) // self._needed(2, LEAST_FLOOD) - 1) // 2

    def blocks(self, dim: int) -> int:
        """Return how many polynomials hold a vector of length `dim` and the lane that counts vectors."""
        return -(-(dim + 1) // DEGREE)
