"""CBOR, as far as COSE documents need it: shortest lengths only, bounded depth, no number but integers.

Arrays and maps may be of indefinite length, as the outermost map of newer Nitro documents is; strings may not.

Source: RFC 8949, sections 3 and 4.2.1.
"""

from collections.abc import Iterator

from consilia.core.errors import ProtocolError
from consilia.crypto.attestation.refusal import Reader, refuse

Value = int | bytes | str | bool | None | list["Value"] | dict[int | str, "Value"]
_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _SIMPLE = 0, 1, 2, 3, 4, 5, 7
_SIMPLE_VALUES: dict[int, bool | None] = {20: False, 21: True, 22: None}
_INDEFINITE, _BREAK = 31, b"\xff"
_DEPTH = 4
_WIDTHS = {24: 1, 25: 2, 26: 4, 27: 8}


def decode(data: bytes) -> Value:
    """Decode one item that fills the buffer.

    Raises:
        ProtocolError: If it is cut, followed by more, nested deeper than 4, has a length or number that is not in its
            shortest form, has a key twice, or holds a tag, a float or a string in pieces.
    """
    reader = Reader(data, "format")
    value = _item(reader, _DEPTH)
    reader.finish()
    return value


def byte_string(data: bytes) -> bytes:
    """Encode a byte string."""
    size = len(data)
    if size < 24:
        return bytes([_BYTES << 5 | size]) + data
    code, width = next((code, width) for code, width in _WIDTHS.items() if size < 1 << 8 * width)
    return bytes([_BYTES << 5 | code]) + size.to_bytes(width, "big") + data


def _item(reader: Reader, depth: int) -> Value:
    if depth < 0:
        raise _malformed(f"nesting of at most {_DEPTH}")
    first = reader.number(1)
    major, number = first >> 5, first & 0x1F
    if major == _SIMPLE:
        if number not in _SIMPLE_VALUES:
            raise _malformed("false, true or null, and no other simple value")
        return _SIMPLE_VALUES[number]
    if major == _ARRAY:
        return [_item(reader, depth - 1) for _ in _count(reader, number)]
    if major == _MAP:
        return _map(reader, number, depth)
    number = _argument(reader, number)
    if major == _UNSIGNED:
        return number
    if major == _NEGATIVE:
        return -1 - number
    if major == _BYTES:
        return reader.take(number)
    if major == _TEXT:
        return _text(reader.take(number))
    raise _malformed("no tag")


def _count(reader: Reader, number: int) -> Iterator[None]:
    """Yield once per element of a container; a count beyond the bytes ends at the last of them, for each takes one at least."""
    if number != _INDEFINITE:
        for _ in range(_argument(reader, number)):
            yield
        return
    while reader.data[reader.at : reader.at + 1] != _BREAK:
        yield
    reader.take(1)


def _argument(reader: Reader, number: int) -> int:
    if number < 24:
        return number
    if number not in _WIDTHS:
        raise _malformed("a definite length")
    width = _WIDTHS[number]
    value = reader.number(width)
    if value < (24 if width == 1 else 1 << 4 * width):
        raise _malformed("the shortest form of a number")
    return value


def _map(reader: Reader, number: int, depth: int) -> dict[int | str, Value]:
    found: dict[int | str, Value] = {}
    for _ in _count(reader, number):
        key = _item(reader, depth - 1)
        if not isinstance(key, (int, str)) or isinstance(key, bool) or key in found:
            raise _malformed("keys that are numbers or texts, each once")
        found[key] = _item(reader, depth - 1)
    return found


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise _malformed("text in UTF-8") from None


def _malformed(needs: str) -> ProtocolError:
    return refuse("format", needs=needs, got="other CBOR")
