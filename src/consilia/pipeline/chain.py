"""Transforms one after another: the contract is folded forwards, decoding runs backwards."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from consilia.core.errors import PlanError, ProtocolError
from consilia.core.spec import Unit, UpdateSpec
from consilia.core.update import Bytes, Vector
from consilia.core.wire import pack_vector, unpack_vector
from consilia.pipeline.clip import Clip
from consilia.pipeline.noise import ServerNoise, SiteNoise
from consilia.pipeline.transform import Array, SiteContext, SumContext, Transform


@dataclass(frozen=True)
class Chain:
    """A pipeline from the learner's vector to the wire, and from the weighted sum back.

    Attributes:
        transforms: The steps.
        sent: Length of the vector that leaves.
    """

    transforms: tuple[Transform, ...] = ()
    sent: int = 0

    def contract(self, spec: UpdateSpec) -> UpdateSpec:
        """Return the spec at the end, or raise `IllegalChain` at the first step that does not fit."""
        for transform in self.transforms:
            spec = transform.contract(spec)
        return spec

    def noise_multiplier(self, own: float) -> float | None:
        """Return the noise that the one noisy step draws, relative to `own`; None without one."""
        found = [z for transform in self.transforms if (z := transform.noise_multiplier(own)) is not None]
        return found[0] if found else None  # the contracts let noise be drawn once

    def encode(self, vector: Vector, context: SiteContext) -> Array:
        """At the site: return what leaves, shape (sent,): float32, or int64 in a ring."""
        out: Array = vector
        for transform in self.transforms:
            out = transform.encode(out, context)
        return out if out.dtype == np.int64 else out.astype(np.float32, copy=False)

    def decode(self, total: Array, context: SumContext) -> Array:
        """At the server: undo on the weighted sum, last transform first, shape (d,)."""
        for transform in reversed(self.transforms):
            total = transform.decode(total, context)
        return total

    def pack(self, vector: Array) -> bytes:
        """Return a real vector as bytes."""
        return pack_vector(vector)

    def unpack(self, payload: Bytes, who: str) -> Vector:
        """Read a real vector back, shape (sent,).

        Raises:
            ProtocolError: If the payload is none, or holds values that are not finite.
        """
        vector = unpack_vector(payload, self.sent, who=who)
        if not np.isfinite(vector).all():
            raise ProtocolError.of(who, needs="finite values", got="NaN or infinite values",
                                   hint="Training diverged at this site, or it is hostile")  # fmt: skip
        return vector


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


def build(spec: UpdateSpec, protection: Protection) -> Chain:
    """Return the chain for this protection.

    Args:
        spec: The raw update, from the model's segments.
        protection: The plan's public numbers.

    Raises:
        IllegalChain: If the transforms do not fit together.
    """
    steps: list[Transform] = []
    if protection.unit is Unit.SITE and protection.clip_norm is not None:
        parts = [(spec.dim - protection.control_dim, protection.clip_norm)]
        if protection.control_dim:
            parts.append((protection.control_dim, protection.control_clip_norm or 0.0))
        clip = Clip(tuple(parts))
        steps.append(clip)
        if protection.placement == "site" and protection.multiplier > 0:
            steps.append(SiteNoise(protection.multiplier, clip.bound))
    if protection.unit is not Unit.NONE and protection.placement == "server" and protection.multiplier > 0:
        steps.append(ServerNoise(protection.multiplier, protection.sum_sensitivity))
    chain = Chain(tuple(steps), spec.dim)
    chain.contract(learner_spec(spec, protection))
    return chain
