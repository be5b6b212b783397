"""Continuous Gaussian noise, at the site or at the server: one mechanism, two placements."""

from dataclasses import dataclass

from consilia.core.errors import IllegalChain
from consilia.core.spec import Encoding, UpdateSpec
from consilia.dp.mechanism import GaussianMechanism
from consilia.dp.sensitivity import effective_multiplier
from consilia.pipeline.transform import Array, SiteContext, SumContext


def _needs_bound(spec: UpdateSpec) -> float:
    if spec.noised:
        raise IllegalChain.of("noise", needs="an update without noise yet", got="a noised update",
                              hint="Draw the noise once: at the site or at the server")  # fmt: skip
    if not spec.shared_support:
        raise IllegalChain.of("noise", needs="the same coordinates from every site", got="each site's own choice",
                              hint="Set messages.random_k instead of messages.top_k")  # fmt: skip
    if spec.encoding is not Encoding.REAL:
        raise IllegalChain.of("continuous noise", needs="real values", got="integers in a ring",
                              hint="Put it before the grid, or add shares of integer noise")  # fmt: skip
    if spec.l2_bound is None:
        raise IllegalChain.of("noise", needs="an update of bounded sensitivity", got="no bound",
                              hint="Clip before the noise")  # fmt: skip
    return spec.l2_bound


@dataclass(frozen=True)
class SiteNoise:
    """Each site adds noise of standard deviation multiplier x sensitivity to its own vector.

    Guarantees:
        The site's release alone is a Gaussian mechanism of this multiplier for the site's unit, against everyone who sees
        it, the coordinator included.
    """

    multiplier: float
    sensitivity: float

    def contract(self, spec: UpdateSpec) -> UpdateSpec:
        """Need a bound no larger than the sensitivity the noise was scaled for; drop the bounds."""
        bound = _needs_bound(spec)
        if bound > self.sensitivity * (1 + 1e-12):
            raise IllegalChain.of("site noise", needs=f"a sensitivity of at most {self.sensitivity:g}", got=f"{bound:g}",
                                  hint="Scale the noise for the clip's own bound")  # fmt: skip
        return spec.with_(noised=True, l2_bound=None, range_linf=None)

    def noise_multiplier(self, own: float) -> float | None:
        """The noise is scaled for the site's own bound."""
        return self.multiplier

    def encode(self, vector: Array, context: SiteContext) -> Array:
        """Return the noised vector, shape (d,)."""
        return GaussianMechanism(self.multiplier, self.sensitivity).release(vector, context.rng)

    def decode(self, total: Array, context: SumContext) -> Array:
        """Nothing to undo."""
        return total


@dataclass(frozen=True)
class ServerNoise:
    """The server adds noise once, to the weighted sum.

    Args:
        multiplier: z.
        sum_sensitivity: How far one unit can move the weighted sum: max over sites of weight x the site's bound.

    Guarantees:
        The noised sum is a Gaussian mechanism of this multiplier against everyone who sees only what the server publishes.
        Against the server itself nothing is bounded.
    """

    multiplier: float
    sum_sensitivity: float

    def contract(self, spec: UpdateSpec) -> UpdateSpec:
        """Need bounded vectors; the sum is noised after decoding, so the bounds are dropped from there on."""
        _needs_bound(spec)
        return spec.with_(noised=True, l2_bound=None, range_linf=None)

    def noise_multiplier(self, own: float) -> float | None:
        """The noise is scaled for the largest contribution, so a smaller one is covered by more."""
        return effective_multiplier(self.multiplier, own=own, largest=self.sum_sensitivity)

    def encode(self, vector: Array, context: SiteContext) -> Array:
        """The site sends its bounded vector as it is."""
        return vector

    def decode(self, total: Array, context: SumContext) -> Array:
        """Return the noised sum, shape (d,)."""
        return GaussianMechanism(self.multiplier, self.sum_sensitivity).release(total, context.rng)
