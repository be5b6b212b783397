"""Transforms one after another: the contract is folded forwards, decoding runs backwards."""

from dataclasses import dataclass

import numpy as np

from consilia.core.errors import IllegalChain, ProtocolError
from consilia.core.finite import all_finite
from consilia.core.randomness import SecretRng
from consilia.core.spec import UpdateSpec
from consilia.core.update import Bytes, Vector
from consilia.pipeline.codec import Codec, Dense
from consilia.pipeline.grid import Grid, Rounding
from consilia.pipeline.noise import ServerNoise
from consilia.pipeline.random_k import RandomK
from consilia.pipeline.share import NoiseShare
from consilia.pipeline.transform import Array, SiteContext, SumContext, Transform

DENSE = Dense()


@dataclass(frozen=True)
class Chain:
    """A pipeline from the learner's vector to the wire, and from the weighted sum back.

    Attributes:
        transforms: The steps.
        sent: Length of the vector that leaves.
        codec: How it becomes bytes where it is real; integers are left to the secure sum.
    """

    transforms: tuple[Transform, ...] = ()
    sent: int = 0
    codec: Codec = DENSE

    def contract(self, spec: UpdateSpec) -> UpdateSpec:
        """Return the spec at the end, or raise `IllegalChain` at the first step that does not fit.

        Noise at the server comes last: it is added to the sum as it was sent, so the bound it needs is that of what is sent.
        """
        for transform in self.transforms:
            spec = transform.contract(spec)
        if any(isinstance(transform, ServerNoise) for transform in self.transforms[:-1]):
            raise IllegalChain.of("noise at the server", needs="the sum as it was sent", got="steps after it, undone before it",
                                  hint="Put it last: what is undone may stretch what one unit moves")  # fmt: skip
        return spec

    def noise_multiplier(self, own: float) -> float | None:
        """Return the noise that the one noisy step draws, relative to `own`; None without one."""
        moved = own * self.stretch
        found = [z for transform in self.transforms if (z := transform.noise_multiplier(moved)) is not None]
        return found[0] if found else None  # the contracts let noise be drawn once

    @property
    def share(self) -> NoiseShare | None:
        """The site's share of distributed noise; None without one."""
        return next((step for step in self.transforms if isinstance(step, NoiseShare)), None)

    @property
    def scale(self) -> float:
        """Grid steps per unit of the weighted vector; 1 where it stays real."""
        return next((step.scale for step in self.transforms if isinstance(step, Grid)), 1.0)

    @property
    def rounding(self) -> Rounding:
        """How the grid rounds; coupled where there is none."""
        return next((step.rounding for step in self.transforms if isinstance(step, Grid)), Rounding.COUPLED)

    @property
    def stretch(self) -> float:
        """What leaving coordinates out multiplies the others by."""
        return next((step.factor for step in self.transforms if isinstance(step, RandomK)), 1.0)

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

    def pack(self, vector: Array, rng: SecretRng) -> bytes:
        """Return a real vector as bytes; the codec may round, with the site's secret randomness."""
        return self.codec.pack(vector, rng)

    def unpack(self, payload: Bytes, who: str) -> Vector:
        """Read a real vector back, shape (sent,).

        Raises:
            ProtocolError: If the payload is none, or holds values that are not finite.
        """
        vector = self.codec.unpack(payload, self.sent, who=who)
        if not all_finite(vector):
            raise ProtocolError.of(who, needs="finite values", got="NaN or infinite values",
                                   hint="Training diverged at this site, or it is hostile")  # fmt: skip
        return vector
