"""The coordinator in a session of secure aggregation, as a state machine: what sites send goes in, what they are sent comes out.

`start` begins a session, `step` takes one event; a state that was stepped is spent, since the running total is added to in
place. Vectors are added as they come and not kept: memory grows with the number of sites by their small messages only.
A stage ends when every site that can answer has, or at `Deadline`. A site that has not answered by then, or answered against
the rules, is dropped, and only it; the session ends without a sum only when too few are left.

A site whose envelopes do not open for their readers makes these refuse: who shared wrongly is named in their reasons.
Nothing here protects anyone from the coordinator: that is `secagg.client`, which takes its word for nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from consilia.core.errors import ProtocolError
from consilia.core.ring import Words
from consilia.secagg.messages import (
    Advert,
    Adverts,
    Begin,
    FromSite,
    Inbox,
    Masked,
    Refused,
    Reveal,
    Shares,
    ToSite,
    Vote,
    Votes,
)
from consilia.secagg.params import Session
from consilia.secagg.server_state import TAKE, Drop, ServerState
from consilia.secagg.state import bind
from consilia.secagg.unmask import Unmasking, unmask

__all__ = [
    "Abort",
    "Deadline",
    "Done",
    "Drop",
    "Event",
    "Lost",
    "Output",
    "Received",
    "Send",
    "ServerState",
    "start",
    "step",
]

_STAGES: tuple[type[FromSite], ...] = (Advert, Shares, Masked, Vote, Reveal)
_LATE = "no answer before the deadline"


@dataclass(frozen=True)
class Received:
    """A site has sent a message."""

    site: str
    message: FromSite


@dataclass(frozen=True)
class Lost:
    """A site will not answer any more: its connection is gone, or what it sent is no message."""

    site: str
    reason: str


@dataclass(frozen=True)
class Deadline:
    """The time for the present stage is over."""


Event = Received | Lost | Deadline


@dataclass(frozen=True)
class Send:
    """A message for a site."""

    site: str
    message: ToSite


@dataclass(frozen=True)
class Done:
    """The session has its sum.

    Attributes:
        total: The survivors' sum in the ring, shape (dim,).
        survivors: Whose vectors it is of, ascending.
        uploads: SHA-256 of each survivor's masked vector as it came, in hex.
        dropped: The sites that went, by name.
    """

    total: Words
    survivors: tuple[str, ...]
    uploads: dict[str, str]
    dropped: dict[str, Drop]


@dataclass(frozen=True)
class Abort:
    """The session ends without a sum.

    Attributes:
        reason: In words.
        dropped: The sites that went, by name.
    """

    reason: str
    dropped: dict[str, Drop]


Output = Send | Done | Abort


def start(session: Session) -> tuple[ServerState, list[Output]]:
    """Return the state in which the coordinator waits for adverts, and the messages that ask for them."""
    total = np.zeros(session.dim, session.ring.dtype)
    state = ServerState(session, total, set(session.cohort))
    return state, [Send(site, Begin(session.session_id)) for site in session.cohort]


def step(state: ServerState, event: Event) -> tuple[ServerState, list[Output]]:
    """Return the state after an event, and what to do; the state given is not to be used again.

    What a site sends a second time, out of its turn, or after it was dropped changes nothing.
    """
    if state.stage == len(_STAGES):
        return state, []
    if isinstance(event, Deadline):
        for site in sorted(state.pending):
            _drop(state, site, _LATE)
    elif isinstance(event, Lost):
        _drop(state, event.site, event.reason)
    elif isinstance(event.message, Refused):
        _drop(state, event.site, event.message.reason)
    elif event.site in state.pending and type(event.message) is _STAGES[state.stage]:
        try:
            TAKE[type(event.message)](state, event.site, event.message)
        except ProtocolError as error:
            _drop(state, event.site, str(error))
        state.pending.discard(event.site)
    outputs: list[Output] = []
    while not state.pending and state.stage < len(_STAGES):
        outputs += _end_stage(state)
    return state, outputs


def _drop(state: ServerState, site: str, reason: str) -> None:
    state.pending.discard(site)
    if site in state.session.cohort:
        state.dropped.setdefault(site, Drop(_STAGES[state.stage].STAGE, reason))


def _end_stage(state: ServerState) -> list[Output]:
    session, ended = state.session, _STAGES[state.stage]
    state.stage += 1
    if ended is Advert:
        adverts = Adverts(state.adverts)
        return _ask(state, {site: adverts for site in state.adverts}, session.fewest)
    if ended is Shares:
        _prune(state)
        sent = {site: Inbox({owner: held[site] for owner, held in state.envelopes.items() if site in held and owner != site})
                for site in state.envelopes}  # fmt: skip
        return _ask(state, sent, session.fewest)
    if ended is Masked:
        return _ask(state, dict.fromkeys(state.uploads, state.survivors), session.fewest)
    if ended is Vote:
        enough = sorted(state.votes)[: session.threshold]
        votes = Votes({site: state.votes[site] for site in enough})
        return _ask(state, dict.fromkeys(state.votes, votes), session.threshold)
    return [_open(state)]


def _ask(state: ServerState, messages: Mapping[str, ToSite], fewest: int) -> list[Output]:
    if len(messages) < fewest:
        stage = _STAGES[state.stage - 1].STAGE
        state.stage = len(_STAGES)
        return [Abort(f"{len(messages)} sites got through stage {stage}, {fewest} are needed.", state.dropped)]
    state.pending = {site for site in messages if site not in state.dropped}
    return [Send(site, messages[site]) for site in sorted(state.pending)]


def _prune(state: ServerState) -> None:
    # A site with too few neighbours left would refuse its inbox; without it, its neighbours have one less.
    graph = state.graph
    while graph.ring is not None:
        sharing = state.envelopes.keys()
        lonely = sorted(site for site in sharing if len(sharing & set(graph.neighbours(site))) < graph.threshold)
        if not lonely:
            return
        for site in lonely:
            del state.envelopes[site]
            state.dropped.setdefault(site, Drop(Shares.STAGE, f"fewer than {graph.threshold} neighbours shared keys"))


def _open(state: ServerState) -> Done | Abort:
    known = Unmasking(
        state.session, state.graph, state.adverts, bind(state.session, state.adverts_digest),
        frozenset(state.envelopes), frozenset(state.uploads), state.shares,
    )  # fmt: skip
    try:
        unmask(state.total, known)
    except ProtocolError as error:
        return Abort(str(error), state.dropped)
    return Done(state.total, state.survivors.names, dict(sorted(state.uploads.items())), state.dropped)
