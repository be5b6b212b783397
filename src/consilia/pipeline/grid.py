"""From real numbers to integers that a ring can add: weigh, cut, round at random."""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from consilia.core.errors import IllegalChain
from consilia.core.randomness import SecretRng
from consilia.core.ring import Ring
from consilia.core.spec import Encoding, UpdateSpec
from consilia.pipeline.transform import Array, SiteContext, SumContext

_TRIES = 64  # each draw is within the bound with probability above 0.39: all fail with one below 2e-14
_MOST = 2.0**62  # keeps the cast to int64 defined
_BLOCK = 1 << 13  # coordinates rounded at a time: what is in between stays in the processor's cache


class Rounding(StrEnum):
    """How a grid rounds at random: once, or again until the norm is within a bound."""

    COUPLED = "coupled"
    CONDITIONAL = "conditional"


def rounded_l2(l2: float, scale: float, dim: int, rounding: Rounding) -> float:
    """Return the sensitivity after rounding, in grid steps, of a vector that one unit moves by at most `l2`.

    Source:
        Kairouz, Liu and Steinke (2021), The distributed discrete Gaussian mechanism, section 4, with beta = exp(-1/2), for
        the conditional one; docs/guarantees-distributed.md, section 2, for both.
    """
    s, root = l2 * scale, math.sqrt(dim)
    if rounding is Rounding.COUPLED:
        return s + root
    return math.sqrt(min((s + root) ** 2, s * s + dim / 4 + s + root / 2))


@dataclass(frozen=True)
class Weigh:
    """Multiply by the site's public weight over the largest of any site's, so that the sum over sites is plain.

    Guarantees:
        The output is finite: a vector that is not finite becomes zero. Weights are at most 1, so no bound grows.
    """

    def contract(self, spec: UpdateSpec) -> UpdateSpec:
        """Need a real vector without its weight; keep the bounds."""
        _needs_real("the weight", spec)
        if spec.weighted:
            raise IllegalChain.of("the weight", needs="a vector without its weight", got="a weighted one",
                                  hint="Weigh once")  # fmt: skip
        return spec.with_(weighted=True)

    def noise_multiplier(self, own: float) -> float | None:
        """It draws no noise."""
        return None

    def encode(self, vector: Array, context: SiteContext) -> Array:
        """Return the weighted vector, shape (d,), float64."""
        if not 0 < context.weight <= 1:
            raise IllegalChain.of("the weight", needs="a share of the largest, above 0 and at most 1", got=context.weight,
                                  hint="Divide by the largest weight of the plan")  # fmt: skip
        if not np.isfinite(vector).all():
            return np.zeros(vector.shape)
        return np.multiply(vector, context.weight, dtype=np.float64)

    def decode(self, total: Array, context: SumContext) -> Array:
        """Nothing to undo: the sum is divided by the sum of these weights where the mean is taken."""
        return total


@dataclass(frozen=True)
class Cut:
    """Cut each coordinate to [-range, range]; one that is not a number becomes zero.

    Guarantees:
        No coordinate of the output exceeds `range`, for any input. Cutting brings no two finite vectors further apart, so a
        bound on what one unit moves stays.
    """

    range: float

    def contract(self, spec: UpdateSpec) -> UpdateSpec:
        """Need real values; give a range."""
        _needs_real("the cut", spec)
        if not 0 < self.range < math.inf:
            raise IllegalChain.of("the cut", needs="a range above 0, finite", got=self.range,
                                  hint="Set secure_sum.range")  # fmt: skip
        return spec.with_(range_linf=min(self.range, spec.range_linf or math.inf))

    def noise_multiplier(self, own: float) -> float | None:
        """It draws no noise."""
        return None

    def encode(self, vector: Array, context: SiteContext) -> Array:
        """Return the cut vector, shape (d,), float64."""
        out = vector.astype(np.float64)
        np.clip(out, -self.range, self.range, out=out)  # NaN stays NaN
        out[np.isnan(out)] = 0.0
        return out

    def decode(self, total: Array, context: SumContext) -> Array:
        """Nothing to undo."""
        return total


@dataclass(frozen=True)
class Grid:
    """Round x * scale at random to one of the two integers beside it, without bias over the draw.

    "coupled" rounds once. "conditional" rounds again until the vector's l2 norm is within a bound, which biases it a little
    and lets one whole vector have a smaller bound.

    Args:
        scale: Grid steps per unit. A power of two where a privacy bound is kept: then x * scale is exact.
        ring: Where sums are taken.
        rounding: Coupled for a sum of which one record is a part, conditional for one vector of a site.
        l2: For conditional rounding: the bound on the norm before the weight.

    Guarantees:
        Coupled: if neighbouring data sets move the input by at most D, then for each value of the rounding's randomness they
        move the output by at most `rounded_l2` of D. Conditional: the output's norm is at most `rounded_l2` of the site's
        weight times `l2`, for any input. A sum over all sites does not wrap. Inputs are doubles: above 2^53 steps they are
        integers already and pass unchanged. Proofs: docs/guarantees-distributed.md, section 2.
    """

    scale: float
    ring: Ring
    rounding: Rounding = Rounding.COUPLED
    l2: float | None = None

    def contract(self, spec: UpdateSpec) -> UpdateSpec:
        """Need weighted real values of bounded range whose sum fits the ring; give bounds in grid steps."""
        _needs_real("the grid", spec)
        if not spec.weighted:
            raise IllegalChain.of("the grid", needs="a vector with its weight inside", got="one without",
                                  hint="Weigh before the grid: a secure sum adds plainly")  # fmt: skip
        if not spec.shared_support:
            raise IllegalChain.of("the grid", needs="the same coordinates from every site", got="each site's own choice",
                                  hint="Set messages.random_k instead of messages.top_k")  # fmt: skip
        if spec.range_linf is None:
            raise IllegalChain.of("the grid", needs="a bound on each coordinate", got="none",
                                  hint="Cut before the grid")  # fmt: skip
        private = spec.l2_bound is not None
        if not 0 < self.scale < math.inf or (private and math.frexp(self.scale)[0] != 0.5):
            raise IllegalChain.of("the grid", needs=f"a {'power of two' if private else 'number above 0'} as its scale",
                                  got=self.scale, hint="Derive it from the plan")  # fmt: skip
        largest = math.floor(spec.range_linf * self.scale) + 1
        require_room(self.ring, spec.sites, largest, noise=0)
        return spec.with_(
            encoding=Encoding.RING,
            ring=self.ring,
            scale=self.scale,
            l2_bound=self._rounded(spec),
            range_linf=float(largest),
        )

    def _rounded(self, spec: UpdateSpec) -> float | None:
        if self.rounding is Rounding.CONDITIONAL and not (spec.l2_bound or math.inf) <= (self.l2 or 0.0) * (1 + 1e-12):
            raise IllegalChain.of("conditional rounding", needs=f"vectors of norm at most {self.l2 or 0.0:g}",
                                  got="no bound" if spec.l2_bound is None else f"{spec.l2_bound:g}",
                                  hint="Clip first, or take coupled rounding")  # fmt: skip
        if spec.l2_bound is None:
            return None
        own = self.l2 if self.rounding is Rounding.CONDITIONAL and self.l2 is not None else spec.l2_bound
        return rounded_l2(own, self.scale, spec.sent, self.rounding)

    def noise_multiplier(self, own: float) -> float | None:
        """Rounding is not counted as noise."""
        return None

    def encode(self, vector: Array, context: SiteContext) -> NDArray[np.int64]:
        """Return the rounded vector, shape (d,), int64."""
        if self.rounding is Rounding.COUPLED:
            return self._drawn(vector, context.rng)
        # A hair below the bound, so that a weight multiplied in another order cannot lie above it.
        bound = rounded_l2((self.l2 or 0.0) * context.weight, self.scale, vector.size, self.rounding) * (1 - 1e-12)
        for _ in range(_TRIES):
            if _norm(out := self._drawn(vector, context.rng)) <= bound:
                return out
        # Towards zero no coordinate grows: an input within its bound stays there.
        out = np.trunc(self._steps(vector)).astype(np.int64)
        return out if _norm(out) <= bound else np.zeros_like(out)

    def _steps(self, vector: Array) -> NDArray[np.float64]:
        steps = np.asarray(vector, np.float64) * self.scale
        return np.clip(steps, -_MOST, _MOST, out=steps)

    def _drawn(self, vector: Array, rng: SecretRng) -> NDArray[np.int64]:
        out = np.empty(vector.size, np.int64)
        for start in range(0, vector.size, _BLOCK):
            _round(self._steps(vector[start : start + _BLOCK]), rng, out[start : start + _BLOCK])
        return out

    def decode(self, total: Array, context: SumContext) -> Array:
        """Return the sum in units, shape (d,), float64."""
        return np.divide(total, self.scale, dtype=np.float64)  # no copy in doubles before it


def require_room(ring: Ring, sites: int, largest: int, *, noise: int) -> None:
    """Refuse a ring in which a sum over sites could wrap.

    Args:
        ring: Where sums are taken.
        sites: The most that answer in one round.
        largest: Bound on a coordinate of one site, in grid steps, before noise.
        noise: What the sum of all sites' noise stays below, in grid steps.

    Raises:
        IllegalChain: With the numbers.
    """
    needed = sites * largest + noise
    if needed > ring.largest:
        raise IllegalChain.of(
            "the secure sum",
            needs=f"room for {sites} sites x {largest}"
            + (f" + noise of {noise}" if noise else "")
            + f" = {needed} steps",
            got=f"a ring of {ring.bits} bits, which holds {ring.largest}",
            hint="Take a larger ring, a coarser grid, a smaller range or less noise",
        )


def _needs_real(who: str, spec: UpdateSpec) -> None:
    if spec.encoding is not Encoding.REAL:
        raise IllegalChain.of(who, needs="real values", got="integers in a ring", hint="Put it before the grid")


def _round(steps: NDArray[np.float64], rng: SecretRng, out: NDArray[np.int64]) -> None:
    """Write ceil(steps - u) for u uniform on the multiples of 2^-53 in [0, 1), exactly; both of shape (d,)."""
    # The fraction of an absolute value is exact in doubles, that of a small negative number is not.
    part = np.abs(steps)
    whole = np.floor(part)
    part -= whole
    u = rng.uniform(steps.size)
    away = part > u
    away ^= (away ^ (part >= 1.0 - u)) & (
        steps < 0
    )  # the second where a number is negative: its size grows if it goes down
    whole += away
    out[...] = np.copysign(whole, steps, out=whole)


def _norm(vector: NDArray[np.int64]) -> float:
    real = vector.astype(np.float64)  # exact below 2^53, and beyond that far above any bound
    return math.sqrt(float(np.dot(real, real)))
