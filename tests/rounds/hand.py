"""A coordinator that a test leads by the hand, step by step, against real sites: every step goes to them as a frame."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.rounds.bench import Bench
from tests.rounds.secure_bench import SITES

from consilia.core.canonical import Json, digest_bytes
from consilia.core.update import ProtocolMessage, Release
from consilia.core.wire import decode, encode, pack_vector
from consilia.secagg.messages import (
    Advert,
    Adverts,
    Begin,
    FromSite,
    Inbox,
    Refused,
    Shares,
    Survivors,
    ToSite,
    from_site,
)

FIRST = b"1" * 16


def charged(one: Bench, site: str) -> int:
    store = one.simulation.sites[site]._store
    assert store is not None
    return sum(count for _, count in store.charged("bench"))


class Hand:
    """A coordinator led by hand through one session; every step goes to the sites as a frame."""

    def __init__(
        self, one: Bench, sid: bytes = FIRST, *, number: int = 1, purpose: str = "update", model: bytes | None = None,
        entries: Sequence[Json] = (),
    ) -> None:  # fmt: skip
        self.one, self.number, self.purpose, self.entries = one, number, purpose, list(entries)
        self.model = pack_vector(one.prepared.initial) if model is None else model
        self.body: dict[str, Json] = {
            "plan": one.prepared.run_plan.digest, "run": "bench", "purpose": purpose, "session": sid.hex(),
            "model": digest_bytes(self.model),
        }  # fmt: skip
        self.sid = sid
        self.inboxes: dict[str, Inbox] = {}

    def step(self, site: str, message: ToSite, **changes: Any) -> FromSite | ProtocolMessage:
        """Send a step; return the site's message, or what it answers instead of one."""
        body = {**self.body, "stage": message.STAGE}
        if isinstance(message, Begin) and self.purpose == "update":
            body["entries"] = self.entries
        task = replace(ProtocolMessage("sum", site, self.number, body, message.to_bytes()), **changes)
        item = decode(self.one.simulation.sites[site].handle(encode(task)), who="test")
        assert isinstance(item, ProtocolMessage)
        return item if item.kind != "sum" else from_site(str(item.body["stage"]), item.payload, who="test")

    def keys(self, sites: Sequence[str] = SITES) -> "Hand":
        """Lead these sites up to their inboxes."""
        adverts = {site: self.step(site, Begin(self.sid)) for site in sites}
        assert all(isinstance(advert, Advert) for advert in adverts.values()), adverts
        shares: dict[str, Any] = {site: self.step(site, Adverts(adverts)) for site in sites}  # type: ignore[arg-type]
        assert all(isinstance(share, Shares) for share in shares.values()), shares
        self.inboxes = {
            site: Inbox({owner: shares[owner].envelopes[site] for owner in sites if owner != site}) for site in sites
        }
        return self

    def vector(self, site: str, inbox: Inbox | None = None, **changes: Any) -> bytes:
        """Ask for a site's vector; return its answer as it comes."""
        box = (inbox or self.inboxes[site]).to_bytes()
        body = {**self.body, "counted": 0, "inbox": base64.b64encode(box).decode(), **changes.pop("body", {})}
        kind = "train" if self.purpose == "update" else "evaluate"
        task = replace(ProtocolMessage(kind, site, self.number, body, self.model), **changes)
        return self.one.simulation.sites[site].handle(encode(task))

    def vectors(self, sites: Sequence[str] = SITES) -> "Hand":
        assert all(isinstance(decode(self.vector(site), who="test"), Release) for site in sites)
        return self

    def votes(self, lists: Mapping[str, tuple[str, ...]]) -> dict[str, FromSite | ProtocolMessage]:
        """Tell each of these sites its list of survivors; return what they say."""
        return {site: self.step(site, Survivors(names)) for site, names in lists.items()}


def refused(answer: bytes | FromSite | ProtocolMessage) -> bool:
    """True if the site said no, in words of its protocol or as a refused task; a failure of its code is no refusal."""
    item = decode(answer, who="test") if isinstance(answer, bytes) else answer
    if isinstance(item, ProtocolMessage) and item.kind != "sum":
        assert set(item.body) == {"error"}
        return item.kind == "refused" and item.body["error"] == "ProtocolError"
    return isinstance(item, Refused)
