"""A few coordinates, the same at every site, drawn afresh each round from public randomness."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilia.core.errors import IllegalChain, PlanError
from consilia.core.randomness import SharedSeed
from consilia.core.spec import Encoding, UpdateSpec
from consilia.pipeline.transform import Array, SiteContext, SumContext


@dataclass(frozen=True)
class RandomK:
    """Send k of d coordinates, each times d / k; the others count as zero.

    Args:
        dim: d, length of the vector that comes in.
        k: How many are sent, 1 to d.

    Guarantees:
        Unbiased over the draw: each coordinate is drawn with probability k / d, independently of the data. Which ones is
        public, so no bound but the factor changes: for each draw one unit moves what is sent by at most d / k times what
        it moved before (l2, and each coordinate), and sums over sites and noise are as sound as without it.
    Source:
        Stich, Cordonnier and Jaggi (2018), Sparsified SGD with Memory, definition 2.1 (rand-k), here scaled to be unbiased.
    """

    dim: int
    k: int

    def __post_init__(self) -> None:
        """Refuse a k outside 1 to d.

        Raises:
            PlanError: If it is.
        """
        if not 1 <= self.k <= self.dim:
            raise PlanError.of("random-k", needs=f"1 to {self.dim} coordinates", got=self.k,
                               hint="Set messages.random_k to a share in (0, 1]")  # fmt: skip

    @property
    def factor(self) -> float:
        """What a coordinate is multiplied by: d / k."""
        return self.dim / self.k

    def contract(self, spec: UpdateSpec) -> UpdateSpec:
        """Need all of a real vector; multiply every bound by d / k.

        Raises:
            IllegalChain: If coordinates were left out before, or values are integers already.
        """
        if spec.kept is not None or not spec.shared_support or spec.dim != self.dim:
            raise IllegalChain.of("random-k", needs=f"all of {self.dim} coordinates",
                                  got=f"{spec.sent} of {spec.dim}" if spec.shared_support else "each site's own choice",
                                  hint="Set messages.random_k or messages.top_k, not both")  # fmt: skip
        if spec.encoding is not Encoding.REAL:
            raise IllegalChain.of("random-k", needs="real values", got="integers in a ring",
                                  hint="Put it before the grid")  # fmt: skip
        return spec.with_(
            kept=self.k,
            l2_bound=None if spec.l2_bound is None else spec.l2_bound * self.factor,
            range_linf=None if spec.range_linf is None else spec.range_linf * self.factor,
        )

    def noise_multiplier(self, own: float) -> float | None:
        """It draws no noise."""
        return None

    def encode(self, vector: Array, context: SiteContext) -> Array:
        """Return the drawn coordinates times d / k, shape (k,)."""
        return vector[self._drawn(context.shared)].astype(np.float64) * self.factor

    def decode(self, total: Array, context: SumContext) -> Array:
        """Put a sum of shape (k,) back in its places, shape (d,)."""
        out = np.zeros(self.dim, total.dtype)
        out[self._drawn(context.shared)] = total
        return out

    def _drawn(self, shared: SharedSeed) -> NDArray[np.int64]:
        """Return the round's coordinates in ascending order, shape (k,).

        They belong to the k smallest of d random words. Only the generator's raw words are used, which numpy promises not
        to change, and no two keys are equal: sites and coordinator with different versions draw the same.
        """
        index_bits = max(self.dim - 1, 1).bit_length()
        words = shared.derive("random-k").generator().bit_generator.random_raw(self.dim)
        keys = (words >> np.uint64(index_bits) << np.uint64(index_bits)) | np.arange(self.dim, dtype=np.uint64)
        smallest = np.partition(keys, self.k - 1)[: self.k]
        drawn: NDArray[np.int64] = np.sort(smallest & np.uint64((1 << index_bits) - 1)).astype(np.int64)
        return drawn
