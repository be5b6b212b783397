"""Bytes of what carries an update, and of what a secure sum says besides."""

from dataclasses import dataclass

from consilia.core.canonical import Json
from consilia.core.update import ProtocolMessage
from consilia.core.wire import encode
from consilia.crypto.keys import KEY_SIZE
from consilia.pipeline.blocks import Blocks
from consilia.pipeline.codec import Codec, Dense
from consilia.pipeline.sparse import Sparse
from consilia.plan.ciphers import paillier_lanes, rlwe_parameters
from consilia.plan.grid import kept_coordinates
from consilia.plan.run_plan import RunPlan
from consilia.plan.secure import SecureTerms
from consilia.secagg.graph import FULL_UP_TO, neighbourhood
from consilia.secagg.messages import Advert, Adverts, Begin, Inbox, Reveal, Shares, Survivors, Vote, Votes
from consilia.secagg.params import ID_SIZE
from consilia.secagg.transcript import Entry

_DIGEST, _HEX, _SIGNATURE, _SHARE = 32, 64, 64, 33
_TAG = 16  # of AES-GCM


@dataclass(frozen=True)
class Bytes:
    """Bytes of one site in one round, to it and from it."""

    down: int = 0
    up: int = 0


def update_bytes(plan: RunPlan) -> int:
    """Return the bytes that carry one site's update, without the message around them."""
    dim, secure = plan.spec.dim, plan.secure
    kept = kept_coordinates(plan.plan, dim)
    if secure is None or secure.ring is None:
        sealed = 0 if secure is None else KEY_SIZE + _TAG
        return _codec(plan, kept).expected_size(dim if plan.plan.messages.top_k is not None else kept) + sealed
    if secure.mode == "paillier":
        return paillier_lanes(secure, plan.plan.secure_sum.key_bits).size(kept)
    if secure.mode == "rlwe":
        return _rlwe(secure, kept)
    return secure.ring.width * kept


def exchange_bytes(plan: RunPlan, members: int, *, entries: bool) -> Bytes:
    """Return what a secure sum of so many sites moves besides updates; masks only, whose keys are new in each sum.

    Args:
        plan: The plan.
        members: Sites that are asked.
        entries: Whether an entry of the signed transcript comes along, as in sums of updates.
    """
    if plan.secure is None or plan.secure.mode != "masks":
        return Bytes()
    peers = _peers(plan.secure, members) or members - 1
    names = sorted((terms.name for terms in plan.sites), key=len)[-members:]
    near, rest = names[-peers - 1 :], names[:-1]
    advert = Advert(bytes(KEY_SIZE), bytes(KEY_SIZE), bytes(_DIGEST), bytes(_SIGNATURE))
    envelopes = dict.fromkeys(near, bytes(2 * _DIGEST + 2 * _SHARE + _TAG)) | {names[-1]: bytes(2 * _DIGEST)}
    votes = dict.fromkeys(rest, bytes(_SIGNATURE))
    uploads = dict.fromkeys(names, "x" * _HEX)
    entry = Entry("x" * 32, 1000, *("x" * _HEX,) * 2, uploads, *("x" * _HEX,) * 3, bytes(_SIGNATURE))
    asks = (Begin(bytes(ID_SIZE)), Adverts(dict.fromkeys(names, advert)), Survivors(tuple(names)), Votes(votes))
    says = (advert, Shares(envelopes), Vote(bytes(_SIGNATURE)), Reveal(dict.fromkeys(near, bytes(_SHARE))))
    whole: dict[str, Json] = {
        "plan": plan.digest, "run": "x" * 32, "purpose": "update", "model": "x" * _HEX, "session": "x" * 2 * ID_SIZE,
        "stage": "survivors",
    }  # fmt: skip
    part: dict[str, Json] = {"stage": "survivors", "session": "x" * 2 * ID_SIZE}
    down = sum(len(encode(ProtocolMessage("sum", near[0], 1, whole, ask.to_bytes()))) for ask in asks)
    up = sum(len(encode(ProtocolMessage("sum", near[0], 1, part, said.to_bytes()))) for said in says)
    inbox = -(-len(Inbox(envelopes).to_bytes()) // 3) * 4  # rides in the task as base64
    told: list[Json] = [entry.to_json()] if entries else []
    return Bytes(down + inbox + len(encode(ProtocolMessage("sum", "", 1, {"entries": told}))), up)


def _peers(secure: SecureTerms, members: int) -> int | None:
    """Return with how many others a site shares masks, None for all of them."""
    found = None
    if members > FULL_UP_TO:
        found = neighbourhood(members, max(secure.colluders, members // 10), secure.dropouts, secure.adversary)
    return None if found is None else found[0]


def _codec(plan: RunPlan, kept: int) -> Codec:
    messages = plan.plan.messages
    if messages.top_k is not None:
        return Sparse(kept)
    return Dense() if messages.quantize_bits is None else Blocks(messages.quantize_bits)


def _rlwe(secure: SecureTerms, kept: int) -> int:
    from consilia.crypto.rlwe import RlweSums  # noqa: PLC0415  (its tables are made where a plan asks for them)

    return RlweSums(rlwe_parameters(secure)).expected_size(kept)
