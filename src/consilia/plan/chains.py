"""From a plan's public numbers to each phase's pipeline: both ends build it from here, and `check` tries it."""

from consilia.core.spec import UpdateSpec
from consilia.pipeline.build import Integers, Messages, build
from consilia.pipeline.chain import Chain
from consilia.pipeline.protection import Protection
from consilia.plan.grid import kept_coordinates
from consilia.plan.schema import Plan
from consilia.plan.secure import SecureTerms


def chain_of(
    plan: Plan, spec: UpdateSpec, protection: Protection, secure: SecureTerms | None, phase: int, against: str
) -> Chain:
    """Return the pipeline of a phase.

    Args:
        plan: The plan.
        spec: The raw update, from the model's segments; `sites` says how many answers a sum may hold.
        protection: The phase's public numbers.
        secure: The plan's secure sum; None in the clear.
        phase: The phase's index.
        against: The adversary the claim names.

    Raises:
        IllegalChain: If the transforms do not fit together.
    """
    kept = kept_coordinates(plan, spec.dim)
    integers = _integers(secure, phase, against)
    messages = Messages(
        random_k=kept if plan.messages.random_k is not None else None,
        top_k=kept if plan.messages.top_k is not None else None,
        bits=plan.messages.quantize_bits if integers is None else None,
    )
    return build(spec, protection, messages, integers)


def _integers(secure: SecureTerms | None, phase: int, against: str) -> Integers | None:
    if secure is None or secure.ring is None:
        return None
    grid = secure.grids[phase]
    # Where noise is shared out the clip norm bounds each number already: the cut then changes nothing.
    cut = grid.cut if grid.cut is not None else (grid.values - 1) / grid.scale
    return Integers(secure.ring, grid.scale, cut, grid.share_variance, secure.shares(against) or 1)
