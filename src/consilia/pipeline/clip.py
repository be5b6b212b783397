"""Clip a site's whole update, part by part, so that one site can move the sum only so far."""

import math
from dataclasses import dataclass

import numpy as np

from consilia.core.errors import IllegalChain
from consilia.core.spec import Unit, UpdateSpec
from consilia.pipeline.transform import Array, SiteContext, SumContext


@dataclass(frozen=True)
class Clip:
    """Scale each part of the update to an l2 norm of at most its bound.

    Args:
        norms: (number of coordinates, C) of each part in order; the sizes add up to d. One part for a model update, two
            when a control variate rides along.

    Guarantees:
        For any input, NaN and infinite values included, the output's l2 norm is at most sqrt(sum C^2): a part that is not
        finite becomes zero. Zero-out sensitivity of the output to the site is therefore sqrt(sum C^2), and no scaling by
        a norm that is 0, infinite or NaN takes place.
    Source:
        McMahan et al. (2018), Learning Differentially Private Recurrent Language Models, section 3 (flat and per-layer).
    """

    norms: tuple[tuple[int, float], ...]

    @property
    def bound(self) -> float:
        """The l2 bound of the whole vector."""
        return math.sqrt(sum(norm * norm for _, norm in self.norms))

    def contract(self, spec: UpdateSpec) -> UpdateSpec:
        """Need real values without noise; give a sensitivity to the site."""
        if spec.noised:
            raise IllegalChain.of("clip", needs="an update without noise yet", got="a noised update",
                                  hint="Put the clip before the noise")  # fmt: skip
        if sum(size for size, _ in self.norms) != spec.dim:
            raise IllegalChain.of("clip", needs=f"parts that add up to {spec.dim} coordinates",
                                  got=f"{[size for size, _ in self.norms]}", hint="Name a norm for every part")  # fmt: skip
        return spec.with_(unit=Unit.SITE, l2_bound=self.bound, range_linf=max(norm for _, norm in self.norms))

    def noise_multiplier(self, own: float) -> float | None:
        """Clipping draws no noise."""
        return None

    def encode(self, vector: Array, context: SiteContext) -> Array:
        """Return the clipped vector, shape (d,)."""
        out = np.array(vector, dtype=np.float64)
        start = 0
        for size, bound in self.norms:
            part = out[start : start + size]
            start += size
            # Overflow in the square counts as "not finite" on purpose: 1e200 is no update.
            with np.errstate(over="ignore", invalid="ignore"):
                norm = math.sqrt(float(np.dot(part, part)))
            if not math.isfinite(norm):
                part[:] = 0.0
            elif norm > bound:
                # One part in 2^20 below the bound absorbs the rounding of the product and of float32 on the wire.
                part *= bound / norm * (1.0 - 2.0**-20)
        return out

    def decode(self, total: Array, context: SumContext) -> Array:
        """Nothing to undo."""
        return total
