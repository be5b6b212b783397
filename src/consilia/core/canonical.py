"""One byte string per value, so that a digest means the same thing at every site."""

import hashlib
import json
from collections.abc import Mapping, Sequence

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]


def canonical_bytes(value: Json) -> bytes:
    """Encode a plain value: sorted keys, no spaces, shortest floats, UTF-8, no NaN or infinity.

    Raises:
        ValueError: If a float is not finite.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest(value: Json) -> str:
    """Return the SHA-256 of the canonical bytes, in hex."""
    return hashlib.sha256(canonical_bytes(value)).hexdigest()


def digest_bytes(data: bytes | memoryview) -> str:
    """Return the SHA-256 of raw bytes, in hex."""
    return hashlib.sha256(data).hexdigest()
