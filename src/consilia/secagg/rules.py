"""What a site checks before it answers: every rule is the site's own and rests on nothing the coordinator says.

Each function raises `ProtocolError` where the event breaks a rule; `secagg.client` then ends the session at this site.
"""

from collections.abc import Callable, Mapping
from typing import Any

from consilia.core.errors import ProtocolError
from consilia.crypto.signing import verify
from consilia.secagg.framing import join_named
from consilia.secagg.messages import Advert, Adverts, Begin, Inbox, Survivors, Votes
from consilia.secagg.params import Session
from consilia.secagg.state import Contribution, State

_LIE = "The coordinator is broken or hostile: leave the run and tell the consortium"


def begin(state: State, event: Begin) -> None:
    """The session is the one this state was made for."""
    if event.session_id != state.session.session_id:
        raise _broken("the start of a session", "the session id it was made with", "another")


def adverts(state: State, event: Adverts) -> None:
    """Enough sites of the cohort, this one among them with its own advert, each signed, no key twice."""
    session, who = state.session, "the list of adverts"
    missing = set(event.adverts) - set(session.cohort)
    if missing:
        raise _broken(who, "sites of the cohort", f"{_some(missing)} besides")
    if event.adverts.get(state.site) != signed(state):
        raise _broken(who, "this site's own advert", "another or none")
    if len(event.adverts) < session.fewest:
        raise _broken(who, f"at least {session.fewest} sites", f"{len(event.adverts)}")
    unsigned = [
        site for site, advert in event.adverts.items() if site != state.site and not genuine(session, site, advert)
    ]
    if unsigned:
        raise _broken(who, "the signature of each site for this session", f"none of {_some(unsigned)}")
    keys = [key for advert in event.adverts.values() for key in (advert.channel, advert.mask)]
    if len(set(keys)) < len(keys):
        raise _broken(who, "keys of which no two are equal", "one twice")


def inbox(state: State, event: Inbox) -> None:
    """Envelopes of neighbours only, all of which open, from enough of them."""
    strangers = set(event.envelopes) - set(state.graph.neighbours(state.site))
    if strangers:
        raise _broken("the inbox", "envelopes of this site's neighbours", f"some of {_some(strangers)}")
    _enough("the inbox", state, event.envelopes)
    for owner, envelope in event.envelopes.items():
        state.keyring.open(owner, state.adverts.adverts[owner], envelope, state.bound)


def contribution(state: State, event: Contribution) -> None:
    """Words of the session's ring, as many as agreed."""
    session, words = state.session, event.words
    if words.dtype != session.ring.dtype or words.shape != (session.dim,) or not words.flags.c_contiguous:
        raise ProtocolError.of(
            "this site's vector", needs=f"{session.dim} words of {session.ring.dtype}",
            got=f"{words.dtype} of shape {words.shape}", hint="Encode it with the plan's pipeline",
        )  # fmt: skip


def survivors(state: State, event: Survivors) -> None:
    """Enough sites, this one among them, each of which let this site hold its shares where it had to."""
    session, names, who = state.session, set(event.names), "the list of survivors"
    if state.site not in names:
        raise _broken(who, "this site, which sent its vector", "a list without it")
    unknown = names - set(state.graph.names)
    if unknown:
        raise _broken(who, "sites with an advert", f"{_some(unknown)} besides")
    around = names & set(state.graph.neighbours(state.site))
    unshared = around - set(state.inbox.envelopes)
    if unshared:
        raise _broken(who, "sites whose shares this site was sent", f"{_some(unshared)} besides")
    least = max(session.fewest, session.threshold)
    if len(names) < least:
        raise _broken(who, f"at least {least} sites", f"{len(names)}")
    _enough(who, state, around)


def votes(state: State, event: Votes) -> None:
    """Enough valid votes of survivors, for the survivors that this site voted for."""
    session, who = state.session, "the list of votes"
    strangers = set(event.signatures) - set(state.survivors.names)
    if strangers:
        raise _broken(who, "votes of survivors", f"some of {_some(strangers)}")
    if len(event.signatures) < session.threshold:
        raise _broken(who, f"at least {session.threshold} votes", f"{len(event.signatures)}")
    ballot = ballot_text(session, state.adverts_digest, state.survivors)
    forged = [
        site for site, signature in event.signatures.items()
        # Its own vote it signs again, which is quicker than verifying and gives the same bytes.
        if (signature != state.identity.signing.sign(ballot) if site == state.site
            else not signed_by(session, site, signature, ballot))
    ]  # fmt: skip
    if forged:
        raise _broken(who, "votes for the survivors that this site was told", f"none of {_some(forged)}")


RULES: Mapping[type, Callable[[State, Any], None]] = {
    Begin: begin, Adverts: adverts, Inbox: inbox, Contribution: contribution, Survivors: survivors, Votes: votes,
}  # fmt: skip


def advert_text(session: Session, site: str, advert: Advert) -> bytes:
    """Return what a site signs of its advert."""
    fields = {"channel": advert.channel, "commitment": advert.commitment, "mask": advert.mask, "site": site.encode()}
    return b"consilia secagg 1 advert\0" + session.context + join_named(fields)


def ballot_text(session: Session, adverts: bytes, survivors: Survivors) -> bytes:
    """Return what a site signs to vote: the context, the digest of all adverts, the survivors."""
    return b"consilia secagg 1 vote\0" + session.context + adverts + survivors.to_bytes()


def signed(state: State) -> Advert:
    """Return this site's own advert."""
    advert = state.keyring.unsigned()
    signature = state.identity.signing.sign(advert_text(state.session, state.site, advert))
    return Advert(advert.channel, advert.mask, advert.commitment, signature)


def genuine(session: Session, site: str, advert: Advert) -> bool:
    """Return whether the site of the roster signed this advert for this session."""
    return signed_by(session, site, advert.signature, advert_text(session, site, advert))


def signed_by(session: Session, site: str, signature: bytes, text: bytes) -> bool:
    """Return whether the site of the roster signed this text."""
    return verify(session.roster.by_name[site].verifying, signature, text)


def _enough(who: str, state: State, around: Mapping[str, object] | set[str]) -> None:
    # Everyone holds shares in a full graph, the owner too. In a sparse one only neighbours do.
    graph = state.graph
    least, have = (state.session.fewest - 1, len(around)) if graph.ring is None else (graph.threshold, len(around))
    if have < least:
        raise _broken(who, f"at least {least} of this site's neighbours", f"{have}")


def _some(names: set[str] | list[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:3]) + (f" and {len(shown) - 3} more" if len(shown) > 3 else "")


def _broken(who: str, needs: str, got: str) -> ProtocolError:
    return ProtocolError.of(who, needs=needs, got=got, hint=_LIE)
