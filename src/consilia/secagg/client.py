"""A site in a session of secure aggregation, as a pure state machine: what it is sent goes in, what it sends comes out.

`start` makes the state of a session, `step` takes one event. The state must be stored before what `step` returns is sent:
a site that forgot what it said could say something else. An event that came before gives the same bytes again. Another one in
its place, or anything else against the rules, ends the session at this site: it answers `Refused` then and for ever.

Guarantees:
    Whatever the coordinator and the other sites send: in one session a site sends one masked vector, votes for one set of
    survivors and gives away, of every other site, shares of one kind: of the own mask's seed for survivors, of the mask key
    for the rest, and only after `threshold` sites signed the same survivors, who are at least `fewest` and 3. So with fewer
    than `threshold` colluders, and at most 2 t - n - 1 of n where the adversary is active, the coordinator learns the
    survivors' sum and nothing else about honest sites' vectors, as far as AES-256, X25519, HKDF-SHA256 and Ed25519 hold.
    Source: Bonawitz et al. (2017), Practical secure aggregation for privacy-preserving machine learning, section 6.2.
    Not covered: what the sum itself shows, and two sessions over one vector. A site must not start a second session for a run,
    round and purpose once `State.masked` of the first is true.
"""

from dataclasses import replace

from consilia.core.errors import ProtocolError
from consilia.core.randomness import SecretRng
from consilia.crypto.prg import Mask, apply_masks
from consilia.secagg import rules
from consilia.secagg.keyring import Keyring, adds
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
    Survivors,
    ToSite,
    Vote,
    Votes,
)
from consilia.secagg.params import Session
from consilia.secagg.roster import Identity
from consilia.secagg.state import Contribution, Given, State

__all__ = ["Contribution", "Event", "State", "start", "step"]

Event = ToSite | Contribution
_ORDER = (Begin, Adverts, Inbox, Contribution, Survivors, Votes)


def start(session: Session, identity: Identity, *, consortium: bytes, rng: SecretRng) -> State:
    """Return the state in which a site waits for the session to begin.

    Args:
        session: What the session is about, from the site's own plan.
        identity: The site's long-term keys.
        consortium: The consortium's public Ed25519 key, from the site's own configuration.
        rng: Secret randomness; 32 bytes are drawn.

    Raises:
        ProtocolError: If the roster is not the consortium's, or has other keys for this site, or the site is not asked.
    """
    session.roster.verify(consortium)
    if identity.name not in session.cohort or session.roster.by_name[identity.name] != identity.member:
        raise ProtocolError.of("this site", needs="its own keys in the roster, and to be asked in this round",
                               got="a session without it", hint="Ask the consortium for the newest roster")  # fmt: skip
    seed = rng.token(32)
    return State(session, identity, seed, keyring=Keyring(session, identity.name, seed))


def step(state: State, event: Event) -> tuple[State, tuple[FromSite, ...]]:
    """Return the state after an event, and what to send.

    Args:
        state: The state so far.
        event: A message of the coordinator, or the site's own vector (`Contribution`) once the inbox has come.
    """
    if state.reason:
        return state, (Refused(state.reason),)
    place = _ORDER.index(type(event))
    recorded = Given(event.digest) if isinstance(event, Contribution) else event
    try:
        if place > len(state.accepted):
            raise _unfit(event, f"after {len(state.accepted)} stages")
        if place < len(state.accepted):
            if recorded != state.accepted[place]:
                raise _unfit(event, "another than before")
            return state, _answer(state, event)
        rules.RULES[type(event)](state, event)
        after = state.with_(recorded)
        return after, _answer(after, event)
    except ProtocolError as error:
        return replace(state, reason=str(error)), (Refused(str(error)),)


def _answer(state: State, event: Event) -> tuple[FromSite, ...]:
    match event:
        case Begin():
            return (rules.signed(state),)
        case Adverts():
            return (_shares(state),)
        case Inbox():
            return ()
        case Contribution():
            return (_masked(state, event),)
        case Survivors():
            ballot = rules.ballot_text(state.session, state.adverts_digest, event)
            return (Vote(state.identity.signing.sign(ballot)),)
        case Votes():
            return (_reveal(state),)


def _shares(state: State) -> Shares:
    holders = state.graph.holders(state.site)
    pairs = state.keyring.pairs(state.graph.threshold, holders, state.adverts_digest)
    adverts = state.adverts.adverts
    return Shares({name: state.keyring.envelope(name, adverts[name], pairs[name], state.bound) for name in holders})


def _masked(state: State, event: Contribution) -> Masked:
    words = event.words.copy()
    adverts: dict[str, Advert] = dict(state.adverts.adverts)
    masks = [Mask(state.keyring.own_key(state.bound))]
    masks += [
        Mask(state.keyring.pair_key(peer, adverts[peer], state.bound), add=adds(state.site, peer))
        for peer in state.inbox.envelopes
    ]
    apply_masks(words, masks)
    return Masked(state.session.ring.pack(words))


def _reveal(state: State) -> Reveal:
    survivors, shares = set(state.survivors.names), {}
    for owner, envelope in state.inbox.envelopes.items():
        pair = state.keyring.open(owner, state.adverts.adverts[owner], envelope, state.bound)
        shares[owner] = pair.own_mask if owner in survivors else pair.mask_key
    holders = state.graph.holders(state.site)
    if state.site in holders:  # a survivor itself, or it would not have voted
        pairs = state.keyring.pairs(state.graph.threshold, holders, state.adverts_digest)
        shares[state.site] = pairs[state.site].own_mask
    return Reveal(shares)


def _unfit(event: Event, got: str) -> ProtocolError:
    name = type(event).__name__
    return ProtocolError.of("the session", needs=f"its events in their order, {name} once and always the same",
                            got=f"{name} {got}", hint="The coordinator is broken or hostile: tell the consortium")  # fmt: skip
