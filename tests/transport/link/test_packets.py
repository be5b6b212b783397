"""Packets: what one end writes the other reads, and nothing that is no packet ends more than its stream."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilia.core.errors import ProtocolError
from consilia.transport.link.packets import (
    MAX_PACKET,
    MAX_PIECE,
    Beat,
    Begin,
    Done,
    Have,
    Hello,
    More,
    Packet,
    Reason,
    Refuse,
    Welcome,
    from_bytes,
    to_bytes,
)  # fmt: skip

IDS = st.binary(min_size=16, max_size=16)
SIZES = st.integers(0, 2**64 - 1)
JSON = st.dictionaries(
    st.text(max_size=9), st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text(max_size=9))
)
PACKETS: st.SearchStrategy[Packet] = st.one_of(
    st.builds(Hello, JSON), st.builds(Welcome, JSON), st.builds(Beat),
    st.builds(Begin, IDS, IDS, SIZES, st.binary(min_size=32, max_size=32), SIZES, st.binary(max_size=99)),
    st.builds(More, IDS, SIZES, st.binary(max_size=99)), st.builds(Have, IDS, SIZES, st.integers(0, 2**32 - 1)),
    st.builds(Done, IDS),
    st.builds(Refuse, IDS, st.sampled_from(Reason)),
)  # fmt: skip


@given(PACKETS)
def test_a_packet_is_read_as_it_was_written(packet: Packet) -> None:
    assert from_bytes(to_bytes(packet), who="test") == packet


@given(st.one_of(st.binary(max_size=200), PACKETS.map(to_bytes).flatmap(
    lambda raw: st.tuples(st.integers(0, len(raw) - 1), st.integers(1, 255)).map(
        lambda where: raw[: where[0]] + bytes([raw[where[0]] ^ where[1]]) + raw[where[0] + 1 :]
    )
)))  # fmt: skip
def test_any_bytes_are_a_packet_or_a_named_error(raw: bytes) -> None:
    found: list[Packet] = []
    try:
        found.append(from_bytes(raw, who="test"))
    except ProtocolError as error:
        text = str(error)
    assert found or "test needs packets of version 1" in text


def test_the_largest_piece_fits_and_a_larger_packet_does_not() -> None:
    raw = to_bytes(Begin(bytes(16), bytes(16), 1, bytes(32), 0, bytes(MAX_PIECE)))
    assert len(raw) == MAX_PACKET
    from_bytes(raw, who="test")
    with pytest.raises(ProtocolError, match=f"{MAX_PACKET + 1} bytes"):
        from_bytes(raw + b"1", who="test")


def test_a_message_begins_where_numbers_can_be_read_in_place() -> None:
    begin = to_bytes(Begin(bytes(16), bytes(16), 1, bytes(32), 0, b"x"))
    more = to_bytes(More(bytes(16), 1, b"x"))
    assert begin.index(b"x") % 16 == more.index(b"x") % 16 == 0


def test_another_version_is_named() -> None:
    with pytest.raises(ProtocolError, match="packet version 2"):
        from_bytes(b"\2" + to_bytes(Beat())[1:], who="test")
