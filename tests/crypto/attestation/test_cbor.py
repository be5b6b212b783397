from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crypto.attestation.makers import cbor as encode

from consilia.core.errors import ProtocolError
from consilia.crypto.attestation.cbor import byte_string, decode


# Source: RFC 8949, appendix A: the examples without floats, tags and strings of indefinite length.
@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("00", 0), ("17", 23), ("1818", 24), ("1903e8", 1000), ("1a000f4240", 1_000_000), ("1b000000e8d4a51000", 10**12),
        ("1bffffffffffffffff", 2**64 - 1), ("20", -1), ("3863", -100), ("3bffffffffffffffff", -(2**64)), ("f4", False),
        ("f5", True), ("f6", None), ("40", b""), ("4401020304", b"\1\2\3\4"), ("60", ""), ("6161", "a"), ("62c3bc", "ü"),
        ("80", []), ("83010203", [1, 2, 3]), ("8301820203820405", [1, [2, 3], [4, 5]]), ("a0", {}),
        ("a201020304", {1: 2, 3: 4}), ("a26161016162820203", {"a": 1, "b": [2, 3]}), ("9fff", []), ("bfff", {}),
        ("9f018202039f0405ffff", [1, [2, 3], [4, 5]]),
        ("83018202039f0405ff", [1, [2, 3], [4, 5]]), ("bf61610161629f0203ffff", {"a": 1, "b": [2, 3]}),
        ("826161bf61626163ff", ["a", {"b": "c"}]),
    ],
)  # fmt: skip
def test_the_standards_examples(raw: str, value: Any) -> None:
    found = decode(bytes.fromhex(raw))
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "raw",
    ["", "f7", "f0", "f818", "f93c00", "fb3ff199999999999a", "c074", "5f42010243030405ff", "7f6161ff", "9f", "bf",
     "9f01", "bf01ff", "ff", "81ff", "3f", "1f", "df", "1800", "190017", "1a0000ffff", "1b00000000ffffffff", "1c",
     "0000", "4401", "61ff", "a201020102", "a1f500", "a14000", "81", "9affffffff", "bb7fffffffffffffff",
     "5bffffffffffffffff", "818181818181"],
)  # fmt: skip
def test_other_forms_are_refused(raw: str) -> None:
    with pytest.raises(ProtocolError, match="Attestation, format"):
        decode(bytes.fromhex(raw))


def test_deep_nesting_is_refused_before_the_stack_ends() -> None:
    for head in (b"\x81", b"\xa1\x00", b"\x9f", b"\xbf\x00"):
        with pytest.raises(ProtocolError, match="nesting"):
            decode(head * 30_000 + b"\x00")


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_byte_strings_are_encoded_as_they_are_read(data: bytes) -> None:
    assert decode(byte_string(data)) == data
    assert byte_string(data) == encode(data)


@pytest.mark.parametrize("size", [0, 23, 24, 255, 256, 65535, 65536])
def test_lengths_take_their_shortest_form(size: int) -> None:
    assert byte_string(bytes(size)) == encode(bytes(size))
    assert decode(byte_string(bytes(size))) == bytes(size)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**64), 2**64 - 1) | st.binary(max_size=40) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.integers(0, 99) | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(VALUES)
def test_what_an_encoder_writes_is_read_back_unless_it_is_too_deep(value: Any) -> None:
    if depth(value) <= 4:
        assert decode(encode(value)) == value
    else:
        with pytest.raises(ProtocolError, match="nesting"):
            decode(encode(value))


def depth(value: Any) -> int:
    """A container's own level counts once for it, and once more for anything in it."""
    if isinstance(value, dict):
        return 1 + max((depth(item) for item in value.values()), default=-1 if not value else 0)
    if isinstance(value, list):
        return 1 + max((depth(item) for item in value), default=-1)
    return 0
