"""A coordinator led by hand through two-phase rounds: every message goes to real sites as a frame."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from tests.rounds.asynchronous.stage import SITES, Stage

from consilia.core.canonical import Json, digest_bytes
from consilia.core.update import ProtocolMessage, Release
from consilia.core.wire import decode, encode, pack_vector
from consilia.secagg.messages import Adverts, Begin, FromSite, Inbox, ToSite, from_site


class Lead:
    """Leads a stage's sites."""

    def __init__(self, one: Stage) -> None:
        self.one = one
        self.model = pack_vector(one.prepared.initial)

    def tell(
        self, site: str, kind: str, number: int, payload: bytes = b"", body: Mapping[str, Json] | None = None
    ) -> ProtocolMessage | Release:
        """Send a task; return the answer."""
        said = {"plan": self.one.plan.digest, "run": self.one.run, "counted": 0, **(body or {})}
        frame = encode(ProtocolMessage(kind, site, number, said, payload))
        return decode(self.one.simulation.sites[site].handle(frame), who="test")

    def prepare(
        self, site: str, number: int, version: int = 0, payload: bytes | None = None
    ) -> ProtocolMessage | Release:
        return self.tell(site, "prepare", number, self.model if payload is None else payload, {"version": version})

    def session(
        self, number: int, cohort: Sequence[str] = SITES[:3], sid: bytes = b"1" * 16, **changes: Any
    ) -> "Masked":
        return Masked(self, number, tuple(cohort), sid, **changes)


class Masked:
    """One session of masks among a named cohort."""

    def __init__(self, lead: Lead, number: int, cohort: tuple[str, ...], sid: bytes, *, named: Json = None,
                 version: int = 0, began: Mapping[str, int] | None = None) -> None:  # fmt: skip
        self.lead, self.number, self.cohort, self.sid = lead, number, cohort, sid
        self.named: Json = list(cohort) if named is None else named
        self.version, self.began = version, dict.fromkeys(cohort, 0) if began is None else dict(began)
        self.body: dict[str, Json] = {
            "purpose": "update", "session": sid.hex(), "model": digest_bytes(lead.model), "entries": [],
        }  # fmt: skip
        self.inboxes: dict[str, Inbox] = {}

    def step(self, site: str, message: ToSite) -> FromSite | ProtocolMessage:
        """Send a step; return the site's message, or what it answers instead of one."""
        body = {**self.body, "stage": message.STAGE, "cohort": self.named}
        item = self.lead.tell(site, "sum", self.number, message.to_bytes(), body)
        assert isinstance(item, ProtocolMessage)
        return item if item.kind != "sum" else from_site(str(item.body["stage"]), item.payload, who="test")

    def keys(self) -> "Masked":
        """Lead the cohort up to its inboxes."""
        adverts: dict[str, Any] = {site: self.step(site, Begin(self.sid)) for site in self.cohort}
        shares: dict[str, Any] = {site: self.step(site, Adverts(adverts)) for site in self.cohort}
        self.inboxes = {
            site: Inbox({owner: shares[owner].envelopes[site] for owner in self.cohort if owner != site})
            for site in self.cohort
        }
        return self

    def add(self, site: str, **changes: Json) -> ProtocolMessage | Release:
        """Ask for the update that waits there."""
        inbox = base64.b64encode(self.inboxes[site].to_bytes()).decode()
        said = {**self.body, "inbox": inbox, "version": self.version, "began": self.began[site], **changes}
        return self.lead.tell(site, "add", self.number, body=said)


def refused(answer: ProtocolMessage | Release | FromSite, error: str = "ProtocolError") -> bool:
    """True if the site said no to a task, with this class of error."""
    return isinstance(answer, ProtocolMessage) and answer.kind == "refused" and answer.body == {"error": error}
