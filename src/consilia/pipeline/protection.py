"""The public numbers that a pipeline is built from, and what they say of the learner's vector."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from consilia.core.errors import PlanError
from consilia.core.spec import Unit, UpdateSpec


@dataclass(frozen=True)
class Protection:
    """The public numbers that a chain is built from.

    Attributes:
        unit: Unit of privacy.
        placement: "site" or "server".
        multiplier: z; 0 without DP.
        clip_norm: C per record, patient or site; None without DP.
        control_clip_norm: Bound on the control variate's change (site unit with SCAFFOLD).
        control_dim: Coordinates of the control variate; 0 when none rides along.
        weights: Per site, its public weight in the sum.
        private_learner: True where the learner's vector is private by itself, whatever the multiplier.
        normalisers: Per site, the public number a clipped sum of records or patients is divided by (expected batch).
    """

    unit: Unit
    placement: str
    multiplier: float
    clip_norm: float | None
    control_clip_norm: float | None
    control_dim: int
    weights: Mapping[str, float]
    normalisers: Mapping[str, float]
    private_learner: bool = False

    def site_bound(self, site: str) -> float:
        """Return how far one unit can move this site's vector (l2)."""
        clip = self.clip_norm or 0.0
        if self.unit.within_site:
            return clip / self.normalisers[site]
        return float(np.hypot(clip, (self.control_clip_norm or 0.0) if self.control_dim else 0.0))

    def __post_init__(self) -> None:
        """Refuse a control variate without a bound under the site unit.

        Raises:
            PlanError: If it is missing.
        """
        if self.unit is Unit.SITE and self.control_dim and self.control_clip_norm is None:
            raise PlanError.of("the site unit with a control variate", needs="a bound on the variate's change", got="none",
                               hint="Set privacy.control_clip_norm")  # fmt: skip

    def mean_variance(self, sites: Iterable[str], denominator: float) -> float:
        """Return the variance of the noise on each coordinate of the weighted mean of these sites' answers.

        Args:
            sites: Whose answers were added.
            denominator: What the weighted sum is divided by.
        """
        if self.placement == "server":
            return (self.multiplier * self.sum_sensitivity / denominator) ** 2
        deviations = (self.weights[site] * self.multiplier * self.site_bound(site) for site in sites)
        return sum(deviation**2 for deviation in deviations) / denominator**2

    @property
    def sum_sensitivity(self) -> float:
        """How far one unit can move the weighted sum: the largest weight x bound over sites."""
        return max(self.weights[site] * self.site_bound(site) for site in self.weights)


def learner_spec(spec: UpdateSpec, protection: Protection) -> UpdateSpec:
    """Return the spec of a vector as the learner hands it over.

    Noise for a record or patient at the site is drawn inside the training loop, so the vector arrives noised; their
    clipping for noise at the server arrives bounded by C over the smallest expected batch.
    """
    if protection.unit.within_site and protection.placement == "site":
        return spec.with_(unit=protection.unit, noised=protection.multiplier > 0 or protection.private_learner)
    if protection.unit.within_site:
        bound = max(protection.site_bound(site) for site in protection.weights)
        return spec.with_(unit=protection.unit, l2_bound=bound, range_linf=None)
    return spec
