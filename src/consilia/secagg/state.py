"""What a site knows in a session: one seed and the events it has accepted; everything else follows from these."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import Self, cast

import numpy as np

from consilia.core.errors import ConsiliaError, StoreError
from consilia.core.ring import Words
from consilia.secagg.framing import join, malformed, split, text
from consilia.secagg.graph import Graph
from consilia.secagg.keyring import Keyring
from consilia.secagg.messages import Adverts, Begin, Inbox, Survivors, Votes
from consilia.secagg.params import Session
from consilia.secagg.roster import Identity


@dataclass(frozen=True, eq=False)
class Contribution:
    """The site's own vector: after the inbox, and before any survivors.

    Attributes:
        words: Elements of the session's ring, shape (dim,).
    """

    words: Words = field(repr=False)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the words: a state keeps no vector."""
        return sha256(np.ascontiguousarray(self.words).data).digest()


@dataclass(frozen=True)
class Given:
    """That the site has put in a vector, and which."""

    digest: bytes

    def to_bytes(self) -> bytes:
        """Return the digest."""
        return self.digest

    @classmethod
    def from_bytes(cls, raw: bytes, *, who: str) -> Self:
        """Read it back, or raise `ProtocolError`."""
        if len(raw) != sha256().digest_size:
            raise malformed(who, f"{len(raw)} bytes that are no digest")
        return cls(raw)


Accepted = Begin | Adverts | Inbox | Given | Survivors | Votes
_STAGES: tuple[type[Accepted], ...] = (Begin, Adverts, Inbox, Given, Survivors, Votes)


@dataclass(frozen=True, eq=False)
class State:
    """A site's side of a session; its text shows no secret.

    Attributes:
        session: What the session is about.
        identity: The site's long-term keys; they are not stored with the state.
        seed: 32 secret bytes behind all that is secret in the session.
        accepted: The events so far, one of each kind, in order.
        reason: Why the site has left the session, or empty.
        keyring: The secrets that the seed gives.
    """

    session: Session
    identity: Identity
    seed: bytes = field(repr=False)
    accepted: tuple[Accepted, ...] = ()
    reason: str = ""
    keyring: Keyring = field(repr=False, kw_only=True)

    @property
    def site(self) -> str:
        """The site's name."""
        return self.identity.name

    @property
    def masked(self) -> bool:
        """True once a masked vector may have left: then no other session may have one for this run, round and purpose."""
        return len(self.accepted) > _STAGES.index(Given)

    @property
    def voted(self) -> tuple[str, ...]:
        """The survivors that this site has voted for; empty before."""
        return self.survivors.names if len(self.accepted) > _STAGES.index(Survivors) else ()

    def with_(self, event: Accepted) -> "State":
        """Return the state after one more event."""
        return replace(self, accepted=(*self.accepted, event))

    @cached_property
    def adverts(self) -> Adverts:
        """What all sites advertised."""
        return cast(Adverts, self.accepted[1])

    @cached_property
    def inbox(self) -> Inbox:
        """The envelopes for this site."""
        return cast(Inbox, self.accepted[2])

    @cached_property
    def survivors(self) -> Survivors:
        """Whose vectors are in the sum."""
        return cast(Survivors, self.accepted[4])

    @property
    def adverts_digest(self) -> bytes:
        """SHA-256 of all adverts."""
        return self.adverts.digest

    @cached_property
    def bound(self) -> bytes:
        """What every key of the session is bound to: its context and all adverts."""
        return bind(self.session, self.adverts_digest)

    @cached_property
    def graph(self) -> Graph:
        """Who shares masks with whom."""
        return Graph.of(self.session, self.adverts_digest, tuple(sorted(self.adverts.adverts)))

    def to_bytes(self) -> bytes:
        """Return the state for the site's own store; it holds secrets."""
        return join([self.session.context, self.site.encode(), self.seed, self.reason.encode(),
                     *(event.to_bytes() for event in self.accepted)])  # fmt: skip

    @classmethod
    def from_bytes(cls, raw: bytes, session: Session, identity: Identity) -> "State":
        """Read what `to_bytes` returned.

        Args:
            raw: The bytes.
            session: The same session.
            identity: The same site's keys.

        Raises:
            StoreError: If the bytes are of another session or site, or damaged.
        """
        who = "the stored state of a secure sum"
        try:
            context, site, seed, reason, *events = split(raw, None, who=who)
            if context != session.context or site != identity.name.encode() or len(events) > len(_STAGES):
                raise ValueError
            accepted = tuple(kind.from_bytes(event, who=who) for kind, event in zip(_STAGES, events, strict=False))
            return cls(session, identity, seed, accepted, text(reason, who=who),
                       keyring=Keyring(session, identity.name, seed))  # fmt: skip
        except (ConsiliaError, ValueError):
            raise StoreError.of(who, needs="the bytes of this session at this site", got="others",
                                hint="Leave the session: who forgot what it said must say nothing more") from None  # fmt: skip


def bind(session: Session, adverts: bytes) -> bytes:
    """Return the digest of a session's context and of all adverts, whose own digest is given."""
    return sha256(session.context + adverts).digest()
