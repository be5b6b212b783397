"""Bytes of what carries an update, and of what a secure sum says besides."""

from consilia.crypto.paillier_lanes import Lanes
from consilia.pipeline.blocks import Blocks
from consilia.pipeline.codec import Codec, Dense
from consilia.pipeline.sparse import Sparse
from consilia.plan.grid import kept_coordinates
from consilia.plan.run_plan import RunPlan


def codec(plan: RunPlan) -> Codec:
    """Return how a plan writes real vectors."""
    messages = plan.plan.messages
    if messages.top_k is not None:
        return Sparse(kept_coordinates(plan.plan, plan.spec.dim))
    return Dense() if messages.quantize_bits is None else Blocks(messages.quantize_bits)


def update_bytes(plan: RunPlan) -> int:
    """Return the bytes that carry one site's update, without the message around them."""
    kept = kept_coordinates(plan.plan, plan.spec.dim)
    secure = plan.secure
    if secure is None or secure.ring is None:
        sent = plan.spec.dim if plan.plan.messages.top_k is not None else kept
        return codec(plan).expected_size(sent)
    if secure.mode == "paillier":
        return Lanes(plan.plan.secure_sum.key_bits, secure.value_bound, secure.cohort).size(kept)
    return secure.ring.width * kept


def exchange_bytes(plan: RunPlan) -> tuple[int, int]:
    """Return the bytes that a secure sum moves besides, (to a site, from it), a round."""
    return 0, 0
