"""How many trials a search makes: laws of a number that is drawn before any data is read, and drawn exactly.

What `dp.selection` proves about "the best of K trials" needs K to be independent of the data, of a known law, and kept
secret: who learns K learns how many others the winner beat. A law that was cut off somewhere would be another law. So
nothing here sums up a table to a last entry, and every coin falls with exactly its chance.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import cast

from consilia.core.canonical import Json
from consilia.core.errors import PlanError
from consilia.core.randomness import SecretRng
from consilia.dp.ranges import Range

MEAN = Range(1.0, 1000.0)
"""Means that a law may have: beyond the upper end nobody waits, and delta is divided by it."""
ETA = Range(-0.99, 1.0)
"""Shapes that a negative binomial law may have here; above 1 nothing is gained that the Poisson law does not give."""

_UP = 1.0 + 1e-12  # what rounding may have taken from a mean


@dataclass(frozen=True)
class NegativeBinomial:
    """K >= 1; its chance falls like (1 - gamma)^k times the product of (l + eta) / (l + 1) over l = 1..k-1.

    Attributes:
        eta: Shape: 1 is the geometric law, 0 the logarithmic one; the smaller, the heavier the tail and the smaller the
            price at the same mean.
        gamma: In (0, 1): the smaller, the more trials.

    Source:
        Papernot and Steinke (2022), Hyperparameter tuning with Renyi differential privacy, definition 1.
    """

    eta: float
    gamma: float

    @classmethod
    def of_mean(cls, eta: float, mean: float) -> "NegativeBinomial":
        """Return the law of this shape whose mean is `mean`.

        Raises:
            PlanError: If the shape or the mean is out of range; a mean of 1 would be no search.
        """
        if eta not in ETA:
            raise PlanError.of("the number of trials", needs=f"a shape eta {ETA}", got=f"{eta:g}",
                               hint="1 is the geometric law, 0 the logarithmic one")  # fmt: skip
        if mean not in MEAN or mean == 1:
            raise _no_mean(mean)
        low, high = 0.0, 1.0  # the mean falls in gamma, from infinity to 1
        while high - low > 1e-15 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if cls(eta, middle).mean > mean else (low, middle)
        return cls(eta, high)

    @cached_property
    def mean(self) -> float:
        """E[K], rounded up."""
        log = -math.log(self.gamma)
        share = 1.0 / log if self.eta == 0 else self.eta / -math.expm1(-self.eta * log)
        return (1.0 / self.gamma - 1.0) * share * _UP

    def chance(self, count: int) -> float:
        """Return P[K = count]."""
        if count < 1:
            return 0.0
        log = -math.log(self.gamma)
        first = (1.0 - self.gamma) * (1.0 / log if self.eta == 0 else self.eta / math.expm1(self.eta * log))
        return first * math.prod((1.0 - self.gamma) * (k + self.eta) / (k + 1) for k in range(1, count))

    def draw(self, rng: SecretRng) -> int:
        """Draw K: a geometric number, kept with a chance equal to its product of (l + eta) / (l + 1), else drawn again.

        The coins of both are flipped in turn, so that a number that will not be kept is given up early.
        """
        gamma, eta = Fraction(self.gamma), Fraction(self.eta)
        count = 1
        while not _falls(rng, gamma):
            kept = eta == 1 or _falls(rng, (count + eta) / (count + 1))
            count = count + 1 if kept else 1
        return count

    def to_json(self) -> dict[str, Json]:
        """Return plain values for a ledger."""
        return {"law": "negative-binomial", "eta": self.eta, "gamma": self.gamma}


@dataclass(frozen=True)
class Poisson:
    """K of the Poisson law; with chance exp(-mean) no trial is made at all, whatever the data.

    Attributes:
        mean: E[K].
    """

    mean: float

    def __post_init__(self) -> None:
        if self.mean not in MEAN:
            raise _no_mean(self.mean)

    def chance(self, count: int) -> float:
        """Return P[K = count]."""
        return math.exp(count * math.log(self.mean) - self.mean - math.lgamma(count + 1)) if count >= 0 else 0.0

    def draw(self, rng: SecretRng) -> int:
        """Draw K as a sum of parts of mean m <= 1/2: fair coins counted up to the first tail, kept with chance (2 m)^k / k!."""
        parts = math.ceil(2.0 * self.mean)
        mean = Fraction(self.mean) / parts
        return sum(_small_poisson(rng, mean) for _ in range(parts))

    def to_json(self) -> dict[str, Json]:
        """Return plain values for a ledger."""
        return {"law": "poisson", "mean": self.mean}


@dataclass(frozen=True)
class Fixed:
    """A number of trials that everybody may know: nothing is gained by keeping only the best, all are charged.

    Attributes:
        count: The number.
    """

    count: int

    def __post_init__(self) -> None:
        if not (isinstance(self.count, int) and self.count in MEAN):
            raise _no_mean(self.count)

    @property
    def mean(self) -> float:
        """The number itself."""
        return float(self.count)

    def chance(self, count: int) -> float:
        """Return 1 for the number, 0 for any other."""
        return float(count == self.count)

    def draw(self, rng: SecretRng) -> int:
        """Return the number; nothing is drawn."""
        return self.count

    def to_json(self) -> dict[str, Json]:
        """Return plain values for a ledger."""
        return {"law": "fixed", "count": self.count}


Trials = NegativeBinomial | Poisson | Fixed


def trials_from_json(value: Mapping[str, Json]) -> Trials:
    """Read back what a law's `to_json` wrote.

    Raises:
        ValueError: If it is none.
    """
    try:
        match value["law"]:
            case "negative-binomial":
                return NegativeBinomial(float(cast("float", value["eta"])), float(cast("float", value["gamma"])))
            case "poisson":
                return Poisson(float(cast("float", value["mean"])))
            case "fixed":
                return Fixed(int(cast("int", value["count"])))
        raise ValueError(f"it is called {value['law']!r}")
    except (KeyError, TypeError, ValueError, PlanError) as error:
        raise ValueError(f"no law of a number of trials: {error}") from None


def at_most(trials: Trials, share: float) -> int:
    """Return the smallest number that K stays at or below with chance `share`, for a forecast."""
    count, total = 0, trials.chance(0)
    while total < share and count < 100 * MEAN.high:
        count += 1
        total += trials.chance(count)
    return count


def _small_poisson(rng: SecretRng, mean: Fraction) -> int:
    while True:
        count = 0
        while _falls(rng, Fraction(1, 2)):
            count += 1
        if all(_falls(rng, 2 * mean / k) for k in range(1, count + 1)):
            return count


def _falls(rng: SecretRng, chance: Fraction) -> bool:
    """Flip a coin of exactly this rational chance: a whole number below the denominator, by rejection, is compared."""
    size = chance.denominator.bit_length()
    octets, surplus = -(-size // 8), -size % 8
    while True:
        number = int.from_bytes(rng.token(octets), "big") >> surplus
        if number < chance.denominator:
            return number < chance.numerator


def _no_mean(mean: float) -> PlanError:
    return PlanError.of("the number of trials", needs=f"a mean {MEAN}, above 1 where it is random", got=f"{mean:g}",
                        hint="Usual is 5 to 30")  # fmt: skip
