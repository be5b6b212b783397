"""The packets of a stream: a few fixed fields each, big endian, with a version in the first byte.

Hello and Welcome carry a JSON object; Begin and More carry up to 1 MB of a message; the rest is small. Fields are padded so
that a message's bytes begin at a multiple of 16. Nothing here unpickles, and no length that a packet states is believed.
"""

import json
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from consilia.core.canonical import Json, canonical_bytes
from consilia.core.errors import ProtocolError
from consilia.core.update import Bytes

VERSION: Final = 1
ID_SIZE: Final = 16
MAX_PIECE: Final = 1 << 20
_KIND = struct.Struct(">BB6x")
_BEGIN = struct.Struct(">BB6xQQ16s16s32s8x")
_SHORT = struct.Struct(">BB2xIQ16s")
MAX_PACKET: Final = _BEGIN.size + MAX_PIECE
NO_REPLY: Final = bytes(ID_SIZE)


class Reason(IntEnum):
    """Why an end refuses a message."""

    TOO_LARGE = 1
    DAMAGED = 2
    NO_SPACE = 3
    OTHER_BYTES = 4
    NOT_AWAITED = 5
    FAILED = 6


@dataclass(frozen=True, slots=True)
class Hello:
    """The first packet of a site: who it is, its versions, and how much it holds of which message."""

    body: dict[str, Json]


@dataclass(frozen=True, slots=True)
class Welcome:
    """The coordinator's answer to Hello: its versions, its limits, and how much it holds of which message."""

    body: dict[str, Json]


@dataclass(frozen=True, slots=True)
class Beat:
    """Says that an end is there when it has nothing else to say."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Begins a message, or goes on with it on a new stream.

    Attributes:
        id: 16 random bytes, by the sender of the message.
        reply: The message that this one answers; zeros: none.
        total: Its size in bytes.
        digest: SHA-256 of the whole, 32 bytes.
        offset: Where `piece` belongs.
        piece: Bytes of it.
    """

    id: bytes
    reply: bytes
    total: int
    digest: bytes
    offset: int
    piece: Bytes


@dataclass(frozen=True, slots=True)
class More:
    """Goes on with a message: bytes of it, and where they belong."""

    id: bytes
    offset: int
    piece: Bytes


@dataclass(frozen=True, slots=True)
class Have:
    """Says how many bytes of a message have come, in order, from its start, and how many more may be under way."""

    id: bytes
    offset: int
    window: int


@dataclass(frozen=True, slots=True)
class Done:
    """Says that a message has come whole and undamaged, or had come before."""

    id: bytes


@dataclass(frozen=True, slots=True)
class Refuse:
    """Says that an end will not take a message, or no longer awaits it."""

    id: bytes
    reason: Reason


Packet = Hello | Welcome | Beat | Begin | More | Have | Done | Refuse
_NUMBERS = {Hello: 1, Welcome: 2, Beat: 3, Begin: 4, More: 5, Have: 6, Done: 7, Refuse: 8}
_KINDS = {number: kind for kind, number in _NUMBERS.items()}


def to_bytes(packet: Packet) -> bytes:
    """Return a packet as it goes over the stream."""
    number = _NUMBERS[type(packet)]
    match packet:
        case Hello(body) | Welcome(body):
            return _KIND.pack(VERSION, number) + canonical_bytes(body)
        case Beat():
            return _KIND.pack(VERSION, number)
        case Begin(id, reply, total, digest, offset, piece):
            return b"".join((_BEGIN.pack(VERSION, number, total, offset, id, reply, digest), piece))
        case More(id, offset, piece):
            return b"".join((_SHORT.pack(VERSION, number, 0, offset, id), piece))
        case Have(id, offset, window):
            return _SHORT.pack(VERSION, number, window, offset, id)
        case Done(id):
            return _SHORT.pack(VERSION, number, 0, 0, id)
        case Refuse(id, reason):
            return _SHORT.pack(VERSION, number, 0, reason, id)


def from_bytes(raw: bytes, *, who: str) -> Packet:
    """Read a packet; a message's bytes are a view of it, not a copy.

    Args:
        raw: What came.
        who: Names the end that reads, for the error.

    Raises:
        ProtocolError: If it is no packet of this version.
    """
    if not _KIND.size <= len(raw) <= MAX_PACKET:
        raise malformed(who, f"{len(raw)} bytes")
    version, number = _KIND.unpack_from(raw)
    if version != VERSION:
        raise malformed(who, f"packet version {version}")
    try:
        return _read(raw, _KINDS[number])
    except (struct.error, ValueError, KeyError, TypeError, RecursionError):
        raise malformed(who, f"{len(raw)} bytes of kind {number} that cannot be read") from None


def _read(raw: bytes, kind: type[Packet]) -> Packet:
    if kind is Hello or kind is Welcome:
        return kind(_object(raw[_KIND.size :]))
    if kind is Beat:
        return Beat()
    view = memoryview(raw)
    if kind is Begin:
        _, _, total, offset, id, reply, digest = _BEGIN.unpack_from(raw)
        return Begin(id, reply, total, digest, offset, view[_BEGIN.size :])
    _, _, window, number, id = _SHORT.unpack_from(raw)
    if kind is More:
        return More(id, number, view[_SHORT.size :])
    if len(raw) != _SHORT.size:
        raise ValueError
    if kind is Have:
        return Have(id, number, window)
    return Done(id) if kind is Done else Refuse(id, Reason(number))


def _object(raw: bytes) -> dict[str, Json]:
    value = json.loads(raw)
    if not isinstance(value, dict):
        raise TypeError
    return value


def malformed(who: str, got: str) -> ProtocolError:
    """Return the error about bytes that no end of this version sends."""
    return ProtocolError.of(who, needs=f"packets of version {VERSION}", got=got,
                            hint="Both ends must run compatible versions")  # fmt: skip
