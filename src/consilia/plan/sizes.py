"""Bytes of what carries an update, and of what a secure sum says besides."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from consilia.crypto.rlwe import RlweSums

_DIGEST, _HEX, _SIGNATURE, _SHARE = 32, 64, 64, 33
_TAG = 16  # of AES-GCM


_ELEMENTS = 4  # that a number takes which rides along, about


@dataclass(frozen=True)
class Bytes:
    """Bytes to sites and from them."""

    down: int = 0
    up: int = 0

    def times(self, count: int) -> "Bytes":
        """Return them so many times."""
        return Bytes(self.down * count, self.up * count)


def update_bytes(plan: RunPlan) -> int:
    """Return the bytes that carry one site's update, without the message around them."""
    dim, secure, kept = plan.spec.dim, plan.secure, kept_coordinates(plan.plan, plan.spec.dim)
    if secure is None or secure.ring is None:
        sealed = 0 if secure is None else KEY_SIZE + _TAG
        return _codec(plan, kept).expected_size(dim if plan.plan.messages.top_k is not None else kept) + sealed
    return _vector(plan, secure, _elements(plan))


def score_bytes(plan: RunPlan) -> int:
    """Return the bytes that carry one site's scores in a secure sum; 0 where they stand in the message around them."""
    secure = plan.secure
    return 0 if secure is None or secure.ring is None else _vector(plan, secure, 3 * _ELEMENTS)


def opening_bytes(plan: RunPlan) -> tuple[Bytes, Bytes]:
    """Return what all sites together are sent and answer to open a sum of updates, and one of scores."""
    return _opening(plan, _elements(plan)), _opening(plan, 3 * _ELEMENTS)


def key_bytes(plan: RunPlan) -> Bytes:
    """Return what the keys of a run take, once, for all sites together.

    Of a joint key each site sends its part, which all get, and a share to every other; of a Paillier key the first site
    hands one over to every other, which has said what it shall be sealed to.
    """
    sites, secure = len(plan.sites), plan.secure
    if secure is not None and secure.mode == "rlwe":
        part = _rlwe(secure).c_1(1)
        return Bytes(sites * (2 * sites - 1) * part, sites * sites * part)
    if secure is not None and secure.mode == "paillier":
        bits = plan.plan.secure_sum.key_bits
        key = bits // 8 + _SIGNATURE + KEY_SIZE + _TAG
        greeting, around = _SIGNATURE + KEY_SIZE, _around(plan)
        return Bytes(sites * (greeting + key + 2 * around), sites * (greeting + key + 2 * around) + bits // 8)
    return Bytes()


def _elements(plan: RunPlan) -> int:
    rides = 2 * _ELEMENTS if plan.plan.privacy.unit == "none" else 0  # weight and loss
    return kept_coordinates(plan.plan, plan.spec.dim) + rides


def _vector(plan: RunPlan, secure: SecureTerms, elements: int) -> int:
    if secure.mode == "paillier":
        return paillier_lanes(secure, plan.plan.secure_sum.key_bits, len(plan.sites)).size(elements)
    if secure.mode == "rlwe":
        return _rlwe(secure).vector(elements)
    return secure.ring.width * elements if secure.ring is not None else 0


def _opening(plan: RunPlan, elements: int) -> Bytes:
    secure = plan.secure
    if secure is None or secure.mode not in ("rlwe", "paillier"):
        return Bytes()
    if secure.mode == "paillier":
        return Bytes(_vector(plan, secure, elements) + _around(plan), 8 * elements + _around(plan))
    rlwe = _rlwe(secure)
    return Bytes(rlwe.c_1(elements), rlwe.vector(elements) - rlwe.c_1(elements)).times(secure.threshold)


def _around(plan: RunPlan) -> int:
    """Return the bytes around what a step of a secure sum carries."""
    return len(encode(ProtocolMessage("sum", plan.sites[0].name, 1, _body(plan)))) if plan.sites else 0


def _body(plan: RunPlan) -> dict[str, Json]:
    return {
        "plan": plan.digest, "run": "x" * 32, "purpose": "update", "model": "x" * _HEX, "session": "x" * 2 * ID_SIZE,
        "stage": "survivors",
    }  # fmt: skip


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
    part: dict[str, Json] = {"stage": "survivors", "session": "x" * 2 * ID_SIZE}
    down = sum(len(encode(ProtocolMessage("sum", near[0], 1, _body(plan), ask.to_bytes()))) for ask in asks)
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


@dataclass(frozen=True)
class _Rlwe:
    sums: "RlweSums"

    def vector(self, elements: int) -> int:
        """Return the bytes of an encrypted vector: c_0, c_1 and a tag."""
        return self.sums.expected_size(elements)

    def c_1(self, elements: int) -> int:
        """Return the bytes of the part that sites open; as many take a site's part of the key, for one block."""
        return len(self.sums.to_open(bytes(self.vector(elements)), elements))


def _rlwe(secure: SecureTerms) -> _Rlwe:
    from consilia.crypto.rlwe import RlweSums  # noqa: PLC0415  (its tables are made where a plan asks for them)

    return _Rlwe(RlweSums(rlwe_parameters(secure)))
