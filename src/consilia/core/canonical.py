"""One byte string per value, so that a digest means the same thing at every site."""

import hashlib
import json
from collections.abc import Mapping, Sequence

import numpy as np

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


class LastDigest:
    """`digest_bytes` that knows the last bytes again: many simulated sites receive one model, and comparing is quicker."""

    def __init__(self) -> None:
        self._last: tuple[bytes | memoryview, str] = (b"", digest_bytes(b""))

    def __call__(self, data: bytes | memoryview) -> str:
        """Return the SHA-256 of bytes that will not change, in hex."""
        known, digest = self._last
        if not np.array_equal(np.frombuffer(data, np.uint8), np.frombuffer(known, np.uint8)):
            digest = digest_bytes(data)
            self._last = data, digest
        return digest
