"""A secure sum's public numbers and the size of messages, as plain values."""

from typing import TypedDict

from consilia.plan.grid import kept_coordinates
from consilia.plan.run_plan import RunPlan


class SecureFacts(TypedDict):
    """Who must answer, and what sums are taken in.

    `ring_bits` is None where sealed real numbers are added; `excess` says how many times its planned variance the noise of
    a sum has when every site answers and none colludes, 1 where no noise is shared out.
    """

    mode: str
    adversary: str
    cohort: int
    dropouts: int
    colluders: int
    fewest: int
    honest: int
    threshold: int
    ring_bits: int | None
    distributed: bool
    excess: float


class MessageFacts(TypedDict):
    """How updates are made smaller; None where they are not. `kept` of all numbers are sent."""

    quantize_bits: int | None
    random_k: float | None
    top_k: float | None
    kept: int


def secure_facts(plan: RunPlan) -> SecureFacts | None:
    """Return the numbers of a plan's secure sum, or None where the coordinator sees each update."""
    terms = plan.secure
    if terms is None:
        return None
    return {
        "mode": terms.mode,
        "adversary": terms.adversary,
        "cohort": terms.cohort,
        "dropouts": terms.dropouts,
        "colluders": terms.colluders,
        "fewest": terms.fewest,
        "honest": terms.honest,
        "threshold": terms.threshold,
        "ring_bits": None if terms.ring is None else terms.ring.bits,
        "distributed": terms.distributed,
        "excess": terms.excess if terms.distributed else 1.0,
    }


def message_facts(plan: RunPlan) -> MessageFacts:
    """Return how a plan makes messages smaller."""
    messages = plan.plan.messages
    return {
        "quantize_bits": messages.quantize_bits,
        "random_k": messages.random_k,
        "top_k": messages.top_k,
        "kept": kept_coordinates(plan.plan, plan.spec.dim),
    }
