"""Bytes on the wire: a versioned frame with a size limit, and vectors as raw little-endian float32.

Frame: magic "CNSL", version (1 byte), kind (1 byte), header length (4 bytes, big endian), header (canonical JSON and up to
15 spaces, so that the payload begins at a multiple of 16 bytes), payload.
Nothing here ever unpickles; a header is plain JSON, a payload is numbers.
"""

import json
import math
import struct

import numpy as np

from consilia.core.canonical import Json, canonical_bytes
from consilia.core.errors import ProtocolError
from consilia.core.update import Bytes, ProtocolMessage, Release, Vector

MAGIC = b"CNSL"
VERSION = 1
MAX_FRAME = 1 << 31
MAX_HEADER = 1 << 20
MAX_TEXT = 256  # characters of a name, a kind or a digest
MAX_COUNT = 1 << 53  # what every JSON reader holds exactly
_PREFIX = struct.Struct(">4sBBI")
_RELEASE, _MESSAGE = 1, 2
_ALIGNMENT = 16  # a payload in its place can be read as numbers without a copy


def pack_vector(vector: Vector) -> bytes:
    """Encode a float32 vector of shape (d,) as 4 d bytes."""
    return np.ascontiguousarray(vector, dtype="<f4").tobytes()


def unpack_vector(payload: Bytes, dim: int, *, who: str) -> Vector:
    """Decode a vector of length `dim`; the result may be read-only.

    Raises:
        ProtocolError: If the payload has another length.
    """
    if len(payload) != 4 * dim:
        raise ProtocolError.of(
            who, needs=f"a vector of {dim} float32 values ({4 * dim} bytes)", got=f"{len(payload)} bytes",
            hint="The site and the coordinator must build the same model: compare their plan digests",
        )  # fmt: skip
    return np.frombuffer(payload, dtype="<f4")


def encode(item: Release | ProtocolMessage) -> bytes:
    """Encode what may leave: a `Release` or a `ProtocolMessage`, never an `Update`."""
    header: dict[str, Json]
    if isinstance(item, Release):
        kind = _RELEASE
        header = {"site": item.site, "round": item.round, "plan": item.plan_digest, "model": item.model_digest,
                  "metrics": item.metrics}  # fmt: skip
    else:
        kind = _MESSAGE
        header = {"kind": item.kind, "site": item.site, "round": item.round, "body": item.body}
    raw = canonical_bytes(header)
    raw += b" " * (-(_PREFIX.size + len(raw)) % _ALIGNMENT)
    return b"".join((_PREFIX.pack(MAGIC, VERSION, kind, len(raw)), raw, item.payload))


def decode(frame: Bytes, *, who: str) -> Release | ProtocolMessage:
    """Decode a frame from the other end; the payload is a view of it, not a copy.

    Raises:
        ProtocolError: If the frame is cut, too large, of another version, or not of this format.
    """
    if len(frame) > MAX_FRAME or len(frame) < _PREFIX.size:
        raise _malformed(who, f"{len(frame)} bytes")
    magic, version, kind, size = _PREFIX.unpack_from(frame)
    if magic != MAGIC or size > MAX_HEADER or _PREFIX.size + size > len(frame):
        raise _malformed(who, "bytes of another format")
    if version != VERSION:
        raise _malformed(who, f"wire version {version}")
    try:
        header = _header(bytes(frame[_PREFIX.size : _PREFIX.size + size]))
        payload = memoryview(frame)[_PREFIX.size + size :]
        if kind == _RELEASE:
            return Release(payload, _text(header["site"]), _count(header["round"]), _text(header["plan"]),
                           _text(header["model"]), _mapping(header["metrics"]))  # fmt: skip
        if kind == _MESSAGE:
            return ProtocolMessage(_text(header["kind"]), _text(header["site"]), _count(header["round"]),
                                   _mapping(header["body"]), payload)  # fmt: skip
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _malformed(who, f"a header that cannot be read ({type(error).__name__})") from None
    raise _malformed(who, f"message kind {kind}")


def _malformed(who: str, got: str) -> ProtocolError:
    return ProtocolError.of(
        who,
        needs=f"a frame of wire version {VERSION}",
        got=got,
        hint="Both ends must run compatible versions",
    )


def _header(raw: bytes) -> dict[str, Json]:
    # "1e999" is JSON and infinite; a lone surrogate is JSON and no text: neither can be written down again.
    header = json.loads(raw, parse_constant=_refuse, parse_float=_finite)
    if b"\\u" in raw:
        canonical_bytes(header)
    return _mapping(header)


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise TypeError
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_COUNT:
        raise TypeError
    return value


def _mapping(value: object) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise TypeError
    return value
