"""What sites and coordinator say to each other in a session, and the bytes of it.

Stage by stage, coordinator > site: Begin > Advert, Adverts > Shares, Inbox > (the site's vector) Masked, Survivors > Vote,
Votes > Reveal. A site that will not go on says Refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import ClassVar, Self

from consilia.core.update import Bytes
from consilia.secagg.framing import join, join_named, malformed, split, split_named, text


@dataclass(frozen=True)
class Begin:
    """Coordinator: a session begins."""

    STAGE: ClassVar[str] = "begin"
    session_id: bytes

    def to_bytes(self) -> bytes:
        """Return the message's bytes."""
        return join([self.session_id])

    @classmethod
    def from_bytes(cls, raw: Bytes, *, who: str) -> Self:
        """Read them back, or raise `ProtocolError`."""
        return cls(*split(raw, 1, who=who))


@dataclass(frozen=True)
class Advert:
    """Site: its public keys for this session.

    Attributes:
        channel: X25519; shares for this site are locked with what it agrees on.
        mask: X25519; pairwise masks come from it.
        commitment: To the seed of the site's own mask, 32 bytes.
        signature: By the site's long-term key over the session's context and all of this.
    """

    STAGE: ClassVar[str] = "advert"
    channel: bytes
    mask: bytes
    commitment: bytes
    signature: bytes

    def to_bytes(self) -> bytes:
        """Return the message's bytes."""
        return join([self.channel, self.mask, self.commitment, self.signature])

    @classmethod
    def from_bytes(cls, raw: Bytes, *, who: str) -> Self:
        """Read them back, or raise `ProtocolError`."""
        return cls(*split(raw, 4, who=who))


@dataclass(frozen=True)
class Adverts:
    """Coordinator: what all sites advertised, by name."""

    STAGE: ClassVar[str] = "adverts"
    adverts: Mapping[str, Advert]

    def to_bytes(self) -> bytes:
        """Return the message's bytes."""
        return self._bytes

    @cached_property
    def _bytes(self) -> bytes:  # every key of a session is bound to them, and they are long
        return join_named({name: advert.to_bytes() for name, advert in self.adverts.items()})

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the message's bytes."""
        return sha256(self._bytes).digest()

    @classmethod
    def from_bytes(cls, raw: Bytes, *, who: str) -> Self:
        """Read them back, or raise `ProtocolError`."""
        return cls({name: Advert.from_bytes(part, who=who) for name, part in split_named(raw, who=who).items()})


@dataclass(frozen=True)
class _Envelopes:
    envelopes: Mapping[str, bytes]

    def to_bytes(self) -> bytes:
        """Return the message's bytes."""
        return join_named(self.envelopes)

    @classmethod
    def from_bytes(cls, raw: Bytes, *, who: str) -> Self:
        """Read them back, or raise `ProtocolError`."""
        return cls(split_named(raw, who=who))


class Shares(_Envelopes):
    """Site: an envelope for each holder of its shares (see `secagg.keyring`), by the holder's name."""

    STAGE: ClassVar[str] = "shares"


class Inbox(_Envelopes):
    """Coordinator: the envelopes for this site, by the sender's name; from these senders it must expect vectors."""

    STAGE: ClassVar[str] = "inbox"


@dataclass(frozen=True)
class Masked:
    """Site: its vector under masks, as `Ring.pack` makes it."""

    STAGE: ClassVar[str] = "masked"
    payload: Bytes

    def to_bytes(self) -> Bytes:
        """Return the message's bytes: nothing but the packed words."""
        return self.payload

    @classmethod
    def from_bytes(cls, raw: Bytes, *, who: str) -> Self:
        """Take the bytes as they are; the session's ring and length decide what they must be."""
        return cls(raw)


@dataclass(frozen=True)
class Survivors:
    """Coordinator: the sites whose vectors are in the sum, ascending."""

    STAGE: ClassVar[str] = "survivors"
    names: tuple[str, ...]

    def to_bytes(self) -> bytes:
        """Return the message's bytes."""
        return join_named(dict.fromkeys(self.names, b""))

    @classmethod
    def from_bytes(cls, raw: Bytes, *, who: str) -> Self:
        """Read them back, or raise `ProtocolError`."""
        parts = split_named(raw, who=who)
        if any(parts.values()):
            raise malformed(who, f"{len(raw)} bytes that are none")
        return cls(tuple(parts))


@dataclass(frozen=True)
class Vote:
    """Site: its signature over the context, all adverts and the survivors it was told."""

    STAGE: ClassVar[str] = "vote"
    signature: bytes

    def to_bytes(self) -> bytes:
        """Return the message's bytes."""
        return join([self.signature])

    @classmethod
    def from_bytes(cls, raw: Bytes, *, who: str) -> Self:
        """Read them back, or raise `ProtocolError`."""
        return cls(*split(raw, 1, who=who))


@dataclass(frozen=True)
class Votes:
    """Coordinator: other sites' votes, by name."""

    STAGE: ClassVar[str] = "votes"
    signatures: Mapping[str, bytes]

    def to_bytes(self) -> bytes:
        """Return the message's bytes."""
        return join_named(self.signatures)

    @classmethod
    def from_bytes(cls, raw: Bytes, *, who: str) -> Self:
        """Read them back, or raise `ProtocolError`."""
        return cls(split_named(raw, who=who))


@dataclass(frozen=True)
class Reveal:
    """Site: one share of every sender in its inbox: of the own mask's seed of survivors, of the mask key of the others.

    Attributes:
        shares: By owner, 33 bytes each. Which kind a share is follows from the survivors that were voted for.
    """

    STAGE: ClassVar[str] = "reveal"
    shares: Mapping[str, bytes] = field(repr=False)

    def to_bytes(self) -> bytes:
        """Return the message's bytes."""
        return join_named(self.shares)

    @classmethod
    def from_bytes(cls, raw: Bytes, *, who: str) -> Self:
        """Read them back, or raise `ProtocolError`."""
        return cls(split_named(raw, who=who))


@dataclass(frozen=True)
class Refused:
    """Site: it takes no further part in the session, and why."""

    STAGE: ClassVar[str] = "refused"
    reason: str

    def to_bytes(self) -> bytes:
        """Return the message's bytes."""
        return join([self.reason.encode()])

    @classmethod
    def from_bytes(cls, raw: Bytes, *, who: str) -> Self:
        """Read them back, or raise `ProtocolError`."""
        return cls(text(split(raw, 1, who=who)[0], who=who))


FromSite = Advert | Shares | Masked | Vote | Reveal | Refused
ToSite = Begin | Adverts | Inbox | Survivors | Votes

_FROM_SITE: tuple[type[FromSite], ...] = (Advert, Shares, Masked, Vote, Reveal, Refused)
_TO_SITE: tuple[type[ToSite], ...] = (Begin, Adverts, Inbox, Survivors, Votes)


def from_site(stage: str, raw: Bytes, *, who: str) -> FromSite:
    """Read a site's message.

    Raises:
        ProtocolError: If there is no such stage, or the bytes are no such message.
    """
    for kind in _FROM_SITE:
        if stage == kind.STAGE:
            return kind.from_bytes(raw, who=who)
    raise malformed(who, "a stage that sites have no message for")


def to_site(stage: str, raw: Bytes, *, who: str) -> ToSite:
    """Read a coordinator's message.

    Raises:
        ProtocolError: If there is no such stage, or the bytes are no such message.
    """
    for kind in _TO_SITE:
        if stage == kind.STAGE:
            return kind.from_bytes(raw, who=who)
    raise malformed(who, "a stage that the coordinator has no message for")
