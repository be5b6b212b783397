"""What the coordinator keeps of a session, and what it takes from a site: a message is checked whole, then recorded."""

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np

from consilia.core.errors import ProtocolError
from consilia.core.ring import Words
from consilia.crypto.keys import ExchangeKey
from consilia.crypto.shamir import SHARE_SIZE
from consilia.secagg.graph import Graph
from consilia.secagg.keyring import ENVELOPE_SIZE, HASH_SIZE, MASK_KEY, OWN_MASK, commit_share
from consilia.secagg.messages import Advert, Adverts, Masked, Reveal, Shares, Survivors, Vote
from consilia.secagg.params import Session
from consilia.secagg.rules import ballot_text, genuine, signed_by

_PROBE = ExchangeKey(bytes(32))  # no secret: agreeing with it finds the points that make every secret known


@dataclass(frozen=True)
class Drop:
    """When and why a site went.

    Attributes:
        stage: The message it did not get through: "advert", "shares", "masked", "vote" or "reveal". After "masked" its
            vector is in the sum all the same.
        reason: In words.
    """

    stage: str
    reason: str


@dataclass(eq=False)
class ServerState:
    """The coordinator's side of a session.

    Attributes:
        session: What the session is about.
        total: The running sum, masks and all.
        pending: Sites of which the present stage still waits for an answer.
        dropped: Sites that went.
        stage: Number of the present stage; past the last one once the session has ended.
        adverts: Of the sites that advertised.
        envelopes: By sender, by holder.
        uploads: Hash of each masked vector.
        votes: Signatures.
        shares: By owner, by holder's number.
    """

    session: Session
    total: Words
    pending: set[str]
    dropped: dict[str, Drop] = field(default_factory=dict)
    stage: int = 0
    adverts: dict[str, Advert] = field(default_factory=dict)
    envelopes: dict[str, dict[str, bytes]] = field(default_factory=dict)
    uploads: dict[str, str] = field(default_factory=dict)
    votes: dict[str, bytes] = field(default_factory=dict)
    shares: dict[str, dict[int, bytes]] = field(default_factory=dict, repr=False)

    # Asked for only once the stage that they rest on is over.

    @cached_property
    def adverts_digest(self) -> bytes:
        """SHA-256 of all adverts."""
        return Adverts(self.adverts).digest

    @cached_property
    def graph(self) -> Graph:
        """Who shares masks with whom."""
        return Graph.of(self.session, self.adverts_digest, tuple(sorted(self.adverts)))

    @cached_property
    def survivors(self) -> Survivors:
        """Whose vectors are in the sum."""
        return Survivors(tuple(sorted(self.uploads)))

    @cached_property
    def ballot(self) -> bytes:
        """What a vote signs."""
        return ballot_text(self.session, self.adverts_digest, self.survivors)


def take_advert(state: ServerState, site: str, message: Advert) -> None:
    """Take a signed advert with keys that no other site has."""
    if not genuine(state.session, site, message):
        raise _unfit(site, "an advert it signed for this session", "another")
    known = {key for advert in state.adverts.values() for key in (advert.channel, advert.mask)}
    if known & {message.channel, message.mask} or message.channel == message.mask:
        raise _unfit(site, "two keys of its own", "one that was there before")
    if len(message.commitment) != HASH_SIZE:
        raise _unfit(site, f"a commitment of {HASH_SIZE} bytes", f"{len(message.commitment)} bytes")
    for key in (message.channel, message.mask):
        _PROBE.agree(key, who=f"the advert of {site}")
    state.adverts[site] = message


def take_shares(state: ServerState, site: str, message: Shares) -> None:
    """Take an envelope for each holder of the site's shares."""
    sizes = {name: len(envelope) for name, envelope in message.envelopes.items()}
    expected = {name: 2 * HASH_SIZE if name == site else ENVELOPE_SIZE for name in state.graph.holders(site)}
    if sizes != expected:
        raise _unfit(site, f"an envelope for each of {len(expected)} holders", f"others ({len(sizes)})")
    state.envelopes[site] = dict(message.envelopes)


def take_masked(state: ServerState, site: str, message: Masked) -> None:
    """Add a masked vector to the sum."""
    words = state.session.ring.unpack(message.payload, state.session.dim, who=f"the masked vector of {site}")
    np.add(state.total, words, out=state.total)
    state.uploads[site] = sha256(message.payload).hexdigest()


def take_vote(state: ServerState, site: str, message: Vote) -> None:
    """Take a valid vote for the survivors that the site was told."""
    if not signed_by(state.session, site, message.signature, state.ballot):
        raise _unfit(site, "a vote for the survivors it was told", "another")
    state.votes[site] = message.signature


def take_reveal(state: ServerState, site: str, message: Reveal) -> None:
    """Take one share of each site that gave this one an envelope, as it was committed to."""
    held = {owner for owner, envelopes in state.envelopes.items() if site in envelopes}
    if set(message.shares) != held:
        raise _unfit(site, f"a share of each of {len(held)} sites", f"those of others ({len(message.shares)})")
    for owner, share in message.shares.items():
        kind = OWN_MASK if owner in state.uploads else MASK_KEY
        committed = state.envelopes[owner][site][kind * HASH_SIZE : (kind + 1) * HASH_SIZE]
        given = commit_share(state.session, owner, site, kind, share)
        if len(share) != SHARE_SIZE or not hmac.compare_digest(given, committed):
            raise _unfit(site, f"the share of {owner} that was committed to", "another")
    for owner, share in message.shares.items():
        state.shares.setdefault(owner, {})[state.session.number(site)] = share


TAKE: Mapping[type, Callable[[ServerState, str, Any], None]] = {
    Advert: take_advert, Shares: take_shares, Masked: take_masked, Vote: take_vote, Reveal: take_reveal,
}  # fmt: skip


def _unfit(site: str, needs: str, got: str) -> ProtocolError:
    return ProtocolError.of(site, needs=needs, got=got, hint="It is left out of this session")
