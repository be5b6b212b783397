"""Who the sites are: long-term public keys that the consortium signs and no coordinator can change."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from consilia.core.canonical import Json, canonical_bytes, digest
from consilia.core.errors import Problem, ProtocolError
from consilia.core.randomness import SecretRng
from consilia.crypto.keys import KEY_SIZE, ExchangeKey
from consilia.crypto.signing import SigningKey, verify

_PURPOSE = b"consilia roster 1\n"


@dataclass(frozen=True)
class Member:
    """What everyone may know about a site.

    Attributes:
        name: The site's name in the plan.
        verifying: Its public Ed25519 key, 32 bytes.
        sealing: Its public X25519 key, 32 bytes: what is meant for this site alone is sealed to it.
    """

    name: str
    verifying: bytes
    sealing: bytes


@dataclass(frozen=True)
class Identity:
    """A site's own private keys; its text never shows them.

    Attributes:
        name: The site's name in the plan.
        signing: What the site signs with.
        sealing: What opens messages sealed to the site.
    """

    name: str
    signing: SigningKey = field(repr=False)
    sealing: ExchangeKey = field(repr=False)

    @classmethod
    def draw(cls, name: str, rng: SecretRng) -> "Identity":
        """Return an identity with fresh keys."""
        return cls(name, SigningKey.draw(rng), ExchangeKey.draw(rng))

    @property
    def member(self) -> Member:
        """The public half."""
        return Member(self.name, self.signing.public, self.sealing.public)


@dataclass(frozen=True)
class Roster:
    """The sites of a consortium, by ascending name, and the consortium's signature.

    Attributes:
        members: The sites that may take part: all, or those of one run (`among`).
        signature: Ed25519 over all sites, by the key that every site has pinned.
        others: The sites of the consortium that take no part; the signature speaks of them, too.
    """

    members: tuple[Member, ...]
    signature: bytes
    others: tuple[Member, ...] = ()

    @classmethod
    def signed(cls, members: Sequence[Member], consortium: SigningKey) -> "Roster":
        """Return the roster of these sites, signed."""
        ordered = tuple(sorted(members, key=lambda member: member.name))
        return cls(ordered, consortium.sign(_text(ordered)))

    def among(self, names: Collection[str]) -> "Roster":
        """Return the roster of a run that only these sites take part in; names that are unknown are left out."""
        whole = self._whole
        return Roster(
            tuple(member for member in whole if member.name in names), self.signature,
            tuple(member for member in whole if member.name not in names),
        )  # fmt: skip

    @property
    def _whole(self) -> tuple[Member, ...]:
        return tuple(sorted((*self.members, *self.others), key=lambda member: member.name))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the members, in hex: every key of a session depends on it."""
        return digest(_plain(self.members))

    @cached_property
    def by_name(self) -> dict[str, Member]:
        """The members by their names."""
        return {member.name: member for member in self.members}

    def verify(self, consortium: bytes) -> None:
        """Check that the consortium signed it and that no two sites share a name or a key.

        Args:
            consortium: The consortium's public Ed25519 key, from the site's own configuration.

        Raises:
            ProtocolError: If not.
        """
        problems, whole = [], self._whole
        if not verify(consortium, self.signature, _text(whole)):
            problems.append(Problem("the roster of sites", "the consortium's signature over exactly these sites",
                                    "another", "Do not take part before the consortium has confirmed the roster"))  # fmt: skip
        names = [member.name for member in self.members]
        keys = [key for member in whole for key in (member.verifying, member.sealing)]
        if (
            names != sorted(set(names))
            or len({member.name for member in whole}) < len(whole)
            or len(set(keys)) < len(keys)
            or any(len(key) != KEY_SIZE for key in keys)
        ):
            problems.append(Problem("the roster of sites", "ascending names, and distinct keys of 32 bytes",
                                    "something else", "Make the roster anew with Roster.signed"))  # fmt: skip
        if problems:
            raise ProtocolError(problems)

    def to_json(self) -> dict[str, Json]:
        """Return a plain value that `from_json` reads: the whole consortium's."""
        return {"members": _plain(self._whole), "signature": self.signature.hex()}

    @classmethod
    def from_json(cls, value: object) -> "Roster":
        """Read what `to_json` returned; `verify` it before use.

        Raises:
            ProtocolError: If it is no roster.
        """
        try:
            if not isinstance(value, dict):
                raise TypeError
            members = tuple(
                Member(_name(one["name"]), bytes.fromhex(one["verifying"]), bytes.fromhex(one["sealing"]))
                for one in value["members"]
            )
            return cls(members, bytes.fromhex(value["signature"]))
        except (KeyError, TypeError, ValueError):
            raise ProtocolError.of("the roster of sites", needs="members with names and keys in hex, and a signature",
                                   got="something else", hint="Ask the consortium for the file again") from None  # fmt: skip


def _plain(members: tuple[Member, ...]) -> Json:
    return [
        {"name": member.name, "verifying": member.verifying.hex(), "sealing": member.sealing.hex()}
        for member in members
    ]


def _text(members: tuple[Member, ...]) -> bytes:
    return _PURPOSE + canonical_bytes(_plain(members))


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    value.encode()  # a lone surrogate is no text
    return value
