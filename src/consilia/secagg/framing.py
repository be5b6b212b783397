"""Parts in one byte string, each after its length (4 bytes, big endian): equal parts are equal bytes, and only they."""

from collections.abc import Mapping, Sequence

from consilia.core.errors import ProtocolError
from consilia.core.update import Bytes

_LENGTH = 4


def join(parts: Sequence[Bytes]) -> bytes:
    """Return the parts as one string."""
    pieces: list[Bytes] = []
    for part in parts:
        pieces += (len(part).to_bytes(_LENGTH, "big"), part)
    return b"".join(pieces)


def join_named(parts: Mapping[str, bytes]) -> bytes:
    """Return named parts as one string: name, part, name, part, by ascending names."""
    return join([piece for name in sorted(parts) for piece in (name.encode(), parts[name])])


def split(raw: Bytes, count: int | None, *, who: str) -> list[bytes]:
    """Return the parts of a string that must have `count` of them, or any number.

    Raises:
        ProtocolError: If it has not.
    """
    parts, place = [], 0
    while place < len(raw):
        start = place + _LENGTH
        place = start + int.from_bytes(raw[place:start], "big")
        parts.append(bytes(raw[start:place]))
    if place != len(raw) or count not in (None, len(parts)):
        raise malformed(who, f"{len(raw)} bytes that are none")
    return parts


def split_named(raw: Bytes, *, who: str) -> dict[str, bytes]:
    """Return named parts, by ascending names.

    Raises:
        ProtocolError: If the string is not what `join_named` makes.
    """
    parts = split(raw, None, who=who)
    names = [text(part, who=who) for part in parts[::2]]
    if len(parts) % 2 or names != sorted(set(names)):
        raise malformed(who, f"{len(raw)} bytes that are none")
    return dict(zip(names, parts[1::2], strict=True))


def text(raw: bytes, *, who: str) -> str:
    """Return bytes as text, or raise `ProtocolError`."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise malformed(who, "bytes that are no text") from None


def malformed(who: str, got: str) -> ProtocolError:
    """Return the error about bytes that are no message."""
    return ProtocolError.of(who, needs="a message of secure aggregation", got=got,
                            hint="Both ends must run compatible versions")  # fmt: skip
