"""Frames: what goes in comes out, and rubbish is refused with one error."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilia.core import wire
from consilia.core.errors import ProtocolError
from consilia.core.update import ProtocolMessage, Release


@given(
    st.text(max_size=20),
    st.integers(0, 10**9),
    st.binary(max_size=200),
    st.dictionaries(st.text(max_size=5), st.integers()),
)
def test_round_trip(site: str, number: int, payload: bytes, body: dict[str, int]) -> None:
    release = Release(payload, site, number, "p", "m", dict(body))
    message = ProtocolMessage("task", site, number, dict(body), payload)
    assert wire.decode(wire.encode(release), who="test") == release
    assert wire.decode(wire.encode(message), who="test") == message


@given(st.binary(max_size=300))
def test_rubbish_is_refused(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        wire.decode(frame, who="test")


@given(st.data())
def test_a_changed_frame_never_raises_anything_else(data: st.DataObject) -> None:
    frame = bytearray(wire.encode(Release(b"12345678", "a", 1, "p", "m", {"loss": 0.5})))
    position = data.draw(st.integers(0, len(frame) - 1))
    frame[position] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(frame)))
    for candidate in (bytes(frame), bytes(frame[:cut])):
        with contextlib.suppress(ProtocolError):
            assert isinstance(wire.decode(candidate, who="test"), Release | ProtocolMessage)


# What cannot be written down again: a lone surrogate in a name, a key or a value, an infinity; and what fits no column.
UNWRITABLE = [
    '{"site":"a","round":1,"plan":"p","model":"m","metrics":{"loss":NaN}}',
    '{"site":"a","round":1,"plan":"p","model":"m","metrics":{"loss":1e999}}',
    '{"site":"a","round":1,"plan":"p","model":"m","metrics":{"loss":-1e999}}',
    '{"site":"a","round":1,"plan":"p","model":"m","metrics":{"head":"\\ud800"}}',
    '{"site":"a","round":1,"plan":"p","model":"m","metrics":{"\\udfff":1}}',
    '{"site":"\\uD800","round":1,"plan":"p","model":"m","metrics":{}}',
    '{"site":"%s","round":1,"plan":"p","model":"m","metrics":{}}' % ("a" * 257),
    '{"site":"a","round":%s,"plan":"p","model":"m","metrics":{}}' % 10**16,
    '["site"]',
]  # fmt: skip


@pytest.mark.parametrize("header", UNWRITABLE)
def test_headers_that_cannot_be_written_down_are_refused(header: str) -> None:
    frame = wire._PREFIX.pack(wire.MAGIC, wire.VERSION, 1, len(header)) + header.encode()
    with pytest.raises(ProtocolError, match="header"):
        wire.decode(frame, who="test")


def test_escapes_that_are_text_are_read() -> None:
    release = Release(b"", "a\0b", 1, "p", "m", {"c:\\ud800": "\\u"})
    assert wire.decode(wire.encode(release), who="test") == release


def test_a_header_nested_too_deeply_is_refused() -> None:
    nested = ("[" * 100_000).encode()
    with pytest.raises(ProtocolError):
        wire.decode(wire._PREFIX.pack(wire.MAGIC, wire.VERSION, 1, len(nested)) + nested, who="test")


def test_another_version_says_so() -> None:
    frame = bytearray(wire.encode(ProtocolMessage("task", "a", 1)))
    frame[4] = 9
    with pytest.raises(ProtocolError, match="wire version 9"):
        wire.decode(bytes(frame), who="test")


def test_vector_of_wrong_length() -> None:
    payload = wire.pack_vector(np.arange(3, dtype=np.float32))
    assert wire.unpack_vector(payload, 3, who="x").tolist() == [0, 1, 2]
    with pytest.raises(ProtocolError, match="4 float32"):
        wire.unpack_vector(payload, 4, who="x")


def test_an_update_has_no_way_onto_the_wire() -> None:
    from consilia.core.update import Update

    with pytest.raises(AttributeError):
        wire.encode(Update(np.zeros(2, np.float32), 1.0))  # type: ignore[arg-type]


@given(st.text(max_size=40))
def test_a_payload_lies_where_numbers_can_be_read_in_place(site: str) -> None:
    vector = np.arange(5, dtype=np.float32)
    frame = wire.encode(Release(wire.pack_vector(vector), site, 1, "p", "m", {}))
    item = wire.decode(frame, who="test")
    found = wire.unpack_vector(item.payload, 5, who="test")
    assert np.shares_memory(found, np.frombuffer(frame, np.uint8))
    assert found.flags.aligned
    assert not found.flags.writeable
    np.testing.assert_array_equal(found, vector)
