"""A site's share of the noise that protects a secure sum: integers, of which only the sum over sites carries the guarantee."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilia.core.errors import IllegalChain
from consilia.core.spec import Encoding, UpdateSpec
from consilia.dp.discrete import VARIANCE, discrete_gaussian, reach
from consilia.pipeline.grid import require_room
from consilia.pipeline.transform import Array, SiteContext, SumContext


@dataclass(frozen=True)
class NoiseShare:
    """Add discrete Gaussian noise of variance `share_variance`, in squared grid steps, to each coordinate.

    Args:
        share_variance: Variance of this site's share, an integer of at least 1.
        shares: How many shares the guarantee counts on: the fewest sites whose answers are summed, less those that may
            collude with the coordinator.

    Guarantees:
        Who sees only sums over at least `shares` sites that drew their shares honestly and keep them to themselves sees a
        `DiscreteGaussianEvent` of these two numbers and of the bound that the vector came in with, whatever else is in the
        sum. One site's vector alone is protected by its own share only.
    Source:
        Kairouz, Liu and Steinke (2021), The distributed discrete Gaussian mechanism for federated learning with secure
        aggregation; docs/guarantees-distributed.md.
    """

    share_variance: int
    shares: int

    def contract(self, spec: UpdateSpec) -> UpdateSpec:
        """Need bounded integers in a ring with room for all sites' noise, not noised yet; drop the bounds."""
        if spec.noised:
            raise IllegalChain.of("a noise share", needs="an update without noise yet", got="a noised update",
                                  hint="Draw the noise once: at the site, at the server or in shares")  # fmt: skip
        if spec.l2_bound is None:
            raise IllegalChain.of("a noise share", needs="an update of bounded sensitivity", got="no bound",
                                  hint="Clip before the noise")  # fmt: skip
        if spec.encoding is not Encoding.RING or spec.ring is None or spec.range_linf is None:
            raise IllegalChain.of("a noise share", needs="integers of bounded range in a ring", got="real values",
                                  hint="Put the grid before the share")  # fmt: skip
        if not VARIANCE[0] <= self.share_variance <= VARIANCE[1]:
            raise IllegalChain.of("a noise share", needs=f"a variance from {VARIANCE[0]} to {VARIANCE[1]:.0e} squared steps",
                                  got=self.share_variance, hint="Change the grid's scale")  # fmt: skip
        if not 1 <= self.shares <= spec.sites:
            raise IllegalChain.of("a noise share", needs=f"1 to {spec.sites} shares to count on", got=self.shares,
                                  hint="Tolerate fewer dropouts or colluders")  # fmt: skip
        noise = reach(self.share_variance, spec.sites, spec.sent)
        require_room(spec.ring, spec.sites, math.ceil(spec.range_linf), noise=noise)
        return spec.with_(noised=True, l2_bound=None, range_linf=None)

    def noise_multiplier(self, own: float) -> float | None:
        """Return the counted shares' noise over `own`, which is in grid steps here."""
        return math.sqrt(self.shares) * math.sqrt(self.share_variance) / own if own > 0 else math.inf

    def encode(self, vector: Array, context: SiteContext) -> NDArray[np.int64]:
        """Return the integers with the site's share added, shape (d,), int64."""
        out: NDArray[np.int64] = vector + discrete_gaussian(self.share_variance, vector.size, context.rng)
        return out

    def decode(self, total: Array, context: SumContext) -> Array:
        """Nothing to undo."""
        return total
