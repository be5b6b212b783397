"""The few coordinates of a vector that are not zero: where they are, and their values."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilia.core.errors import IllegalChain, ProtocolError
from consilia.core.randomness import SecretRng
from consilia.core.spec import UpdateSpec
from consilia.core.update import Bytes, Vector
from consilia.core.wire import pack_vector, unpack_vector
from consilia.pipeline.codec import malformed

_GAPS, _BITMAP = 0, 1
_HEAD = 5  # flag and count
_LONGEST = 5  # bytes of a gap below 2^35
_Index = NDArray[np.int64]


@dataclass(frozen=True)
class Sparse:
    """At most `kept` coordinates, each with its place.

    Payload: one flag byte; their number (4 bytes, big endian); where they are, as gaps of 7 bits a byte with the highest bit
    set on all but the last byte of a gap (flag 0; a gap counts the coordinates skipped) or as a bitmap of all coordinates,
    lowest bit first (flag 1), whichever is smaller; their values as little-endian float32.

    Args:
        kept: How many at most.
    """

    kept: int
    name: str = "sparse float32"

    def contract(self, spec: UpdateSpec) -> UpdateSpec:
        """Need an update of few coordinates.

        Raises:
            IllegalChain: If every coordinate is sent.
        """
        if spec.shared_support:
            raise IllegalChain.of("sparse messages", needs="an update of which each site chose a few coordinates",
                                  got="all coordinates", hint="Set messages.top_k")  # fmt: skip
        return spec

    def pack(self, vector: Vector, rng: SecretRng) -> bytes:
        """Return the coordinates that are not zero; nothing is drawn.

        Raises:
            ProtocolError: If they are more than `kept`, or one is not finite.
        """
        at = np.flatnonzero(vector)  # NaN is not zero
        if len(at) > self.kept or not np.isfinite(vector[at]).all():
            raise ProtocolError.of("sparse messages", needs=f"at most {self.kept} finite values besides zeros",
                                   got=f"{len(at)} values" if len(at) > self.kept else "NaN or infinite values",
                                   hint="Training diverged: lower the rates")  # fmt: skip
        gaps, bitmap_size = _write_gaps(at), -(-len(vector) // 8)
        if len(gaps) <= bitmap_size:
            flag, places = _GAPS, gaps
        else:
            flag, places = _BITMAP, np.packbits(vector != 0, bitorder="little").tobytes()
        return b"".join((bytes([flag]), len(at).to_bytes(4, "big"), places, pack_vector(vector[at])))

    def unpack(self, payload: Bytes, dim: int, *, who: str) -> Vector:
        """Return the whole vector, shape (dim,), zero where nothing was sent, every value finite.

        Raises:
            ProtocolError: If the payload is not what `pack` could have written for this length.
        """
        view = memoryview(payload)
        if len(view) < _HEAD:
            raise malformed(who, f"at least {_HEAD} bytes", f"{len(view)}")
        count = int.from_bytes(view[1:_HEAD], "big")
        if count > min(self.kept, dim):
            raise malformed(who, f"at most {min(self.kept, dim)} coordinates", f"{count}")
        if view[0] == _GAPS:
            at, size = _read_gaps(view[_HEAD:], count, dim, who)
        elif view[0] == _BITMAP:
            at, size = _read_bitmap(view[_HEAD:], count, dim, who)
        else:
            raise malformed(who, "a flag of 0 or 1", f"{view[0]}")
        values = unpack_vector(view[_HEAD + size :], count, who=who)
        if not np.isfinite(values).all():
            raise malformed(who, "finite values", "NaN or infinite values")
        out = np.zeros(dim, np.float32)
        out[at] = values
        return out

    def expected_size(self, dim: int) -> int:
        """Return the bytes of a payload at most: gaps that need another byte are rare, since all gaps add up to `dim`."""
        kept = min(self.kept, dim)
        gaps = kept + sum(min(kept, dim >> 7 * byte) for byte in range(1, _LONGEST))
        return _HEAD + min(gaps, -(-dim // 8)) + 4 * kept


def _write_gaps(at: _Index) -> bytes:
    gaps = np.diff(at, prepend=-1) - 1
    groups = (gaps[:, None] >> 7 * np.arange(_LONGEST)) & 0x7F
    used = np.ones(groups.shape, bool)
    used[:, 1:] = gaps[:, None] >> 7 * np.arange(1, _LONGEST) > 0
    groups[:, :-1][used[:, 1:]] |= 0x80  # another byte of this gap follows
    return groups[used].astype(np.uint8).tobytes()


def _read_gaps(body: memoryview, count: int, dim: int, who: str) -> tuple[_Index, int]:
    """Return the places, shape (count,), and the bytes they took."""
    if count == 0:
        return np.empty(0, np.int64), 0
    raw = np.frombuffer(body[: count * _LONGEST], np.uint8)
    last = np.flatnonzero(raw < 0x80)[:count]
    if len(last) < count:
        raise malformed(who, f"{count} gaps", f"{len(last)}")
    first = np.concatenate([[0], last[:-1] + 1])
    lengths = last - first + 1
    if lengths.max() > _LONGEST or (raw[last[lengths > 1]] == 0).any():
        raise malformed(who, f"gaps in their shortest form of at most {_LONGEST} bytes", "longer ones")
    size = int(last[-1]) + 1
    place = np.arange(size) - np.repeat(first, lengths)
    gaps = np.add.reduceat((raw[:size].astype(np.int64) & 0x7F) << 7 * place, first)
    at = np.cumsum(gaps + 1) - 1
    if gaps.max() >= dim or at[-1] >= dim:  # where each gap is small, no sum of them can have wrapped
        raise malformed(who, f"places below {dim}", "a place beyond")
    return at, size


def _read_bitmap(body: memoryview, count: int, dim: int, who: str) -> tuple[_Index, int]:
    """Return the places, shape (count,), and the bytes they took."""
    size = -(-dim // 8)
    if len(body) < size:
        raise malformed(who, f"a bitmap of {size} bytes", f"{len(body)}")
    at = np.flatnonzero(np.unpackbits(np.frombuffer(body[:size], np.uint8), bitorder="little"))
    if len(at) != count or (count and at[-1] >= dim):
        raise malformed(who, f"{count} places below {dim}", f"{len(at)}, or a place beyond")
    return at, size
