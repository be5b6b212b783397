"""Several packets in one body, each behind its length in four bytes, big endian."""

import struct
from collections.abc import Iterable
from typing import Final

from consilia.transport.link.packets import MAX_PACKET, malformed

_LENGTH = struct.Struct(">I")
ENOUGH: Final = 1 << 16  # bytes after which a body takes no further packet
MOST_BODY: Final = MAX_PACKET + 2 * ENOUGH


def cost(packet: bytes) -> int:
    """Return the bytes that a packet takes in a body."""
    return _LENGTH.size + len(packet)


def pack(packets: Iterable[bytes]) -> bytes:
    """Return a body of these packets."""
    return b"".join(part for packet in packets for part in (_LENGTH.pack(len(packet)), packet))


def unpack(body: bytes, *, who: str) -> list[bytes]:
    """Return the packets of a body.

    Raises:
        ProtocolError: If it is none.
    """
    packets, place = [], 0
    while place < len(body):
        if place + _LENGTH.size > len(body):
            raise malformed(who, "a body that ends within a length")
        [length] = _LENGTH.unpack_from(body, place)
        place += _LENGTH.size
        if place + length > len(body):
            raise malformed(who, "a body that ends within a packet")
        packets.append(body[place : place + length])
        place += length
    return packets
