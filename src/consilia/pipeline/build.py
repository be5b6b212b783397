"""From a plan's public numbers to the pipeline that both ends run."""

from dataclasses import dataclass

from consilia.core.ring import Ring
from consilia.core.spec import Unit, UpdateSpec
from consilia.pipeline.blocks import Blocks
from consilia.pipeline.chain import DENSE, Chain
from consilia.pipeline.clip import Clip
from consilia.pipeline.codec import Codec
from consilia.pipeline.grid import Cut, Grid, Rounding, Weigh
from consilia.pipeline.noise import ServerNoise, SiteNoise
from consilia.pipeline.protection import Protection, learner_spec
from consilia.pipeline.random_k import RandomK
from consilia.pipeline.share import NoiseShare
from consilia.pipeline.sparse import Sparse
from consilia.pipeline.top_k import TopK
from consilia.pipeline.transform import Transform


@dataclass(frozen=True)
class Messages:
    """How updates are made smaller.

    Attributes:
        random_k: Coordinates that are sent, the same at every site; None for all.
        top_k: Coordinates that each site chooses; None for all.
        bits: Bits a coordinate of updates in the clear; None for float32.
    """

    random_k: int | None = None
    top_k: int | None = None
    bits: int | None = None


@dataclass(frozen=True)
class Integers:
    """How updates become integers that a secure sum can add.

    Attributes:
        ring: Where they are added.
        scale: Grid steps per unit of the weighted vector.
        cut: What each coordinate is cut to before.
        share_variance: Variance of a site's share of the noise, in squared steps; 0 without shares.
        shares: How many shares the guarantee counts on.
    """

    ring: Ring
    scale: float
    cut: float
    share_variance: int = 0
    shares: int = 0


_FULL = Messages()


def build(
    spec: UpdateSpec, protection: Protection, messages: Messages = _FULL, integers: Integers | None = None
) -> Chain:
    """Return the chain for this protection.

    Args:
        spec: The raw update, from the model's segments.
        protection: The plan's public numbers.
        messages: How updates are made smaller.
        integers: How they become integers under a secure sum; None where they stay real.

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
    if messages.random_k is not None:
        steps.append(RandomK(spec.dim, messages.random_k))
    if messages.top_k is not None:
        steps.append(TopK(messages.top_k))
    if protection.unit is not Unit.NONE and protection.placement == "server" and protection.multiplier > 0:
        # Last, so that it is added to the sum as it was sent, where leaving coordinates out has stretched what one unit moves.
        steps.append(ServerNoise(protection.multiplier, protection.sum_sensitivity * Chain(tuple(steps)).stretch))
    codec: Codec = DENSE
    if integers is not None:
        bound = Chain(tuple(steps)).contract(learner_spec(spec, protection)).l2_bound
        grid = Grid(integers.scale, integers.ring)
        if protection.unit is Unit.SITE and bound is not None:
            # One whole vector, whose neighbour is none: its own integers can be held to a smaller bound.
            grid = Grid(integers.scale, integers.ring, Rounding.CONDITIONAL, bound)
        steps += [Weigh(), Cut(integers.cut), grid]
        if integers.share_variance:
            steps.append(NoiseShare(integers.share_variance, integers.shares))
    elif messages.top_k is not None:
        codec = Sparse(messages.top_k)
    elif messages.bits is not None:
        codec = Blocks(messages.bits)
    chain = Chain(tuple(steps), messages.random_k or spec.dim, codec)
    chain.contract(learner_spec(spec, protection))
    leaves = Chain(tuple(step for step in steps if not isinstance(step, ServerNoise)))
    codec.contract(leaves.contract(learner_spec(spec, protection)))
    return chain
