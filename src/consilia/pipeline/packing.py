"""Small whole numbers side by side in bytes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint8]


@dataclass(frozen=True)
class Packing:
    """`count` codes of `bits` bits, the first in the lowest bits, fill `width` bytes, little-endian; width at most 8."""

    bits: int
    count: int
    width: int

    @classmethod
    def tight(cls, bits: int) -> "Packing":
        """No bit is lost: eight codes fill `bits` bytes."""
        return cls(bits, 8, bits)

    @classmethod
    def whole(cls, bits: int) -> "Packing":
        """As many codes in a byte as fit whole: then a code of bytes sees every number in one of few places."""
        return cls(bits, 8 // bits, 1)

    def size(self, dim: int) -> int:
        """Return the bytes that `dim` codes take."""
        full, rest = divmod(dim, self.count)
        return full * self.width + -(-rest * self.bits // 8)

    def pack(self, codes: Codes) -> bytes:
        """Return codes below 2^bits, shape (dim,), as `size(dim)` bytes."""
        lanes = np.zeros((-(-len(codes) // self.count), self.count), np.uint8)
        lanes.ravel()[: len(codes)] = codes
        words = np.zeros(len(lanes), "<u8")
        for lane in range(self.count):
            words |= lanes[:, lane].astype("<u8") << np.uint64(self.bits * lane)
        return words.view(np.uint8).reshape(-1, 8)[:, : self.width].tobytes()[: self.size(len(codes))]

    def unpack(self, raw: bytes | memoryview, dim: int) -> Codes | None:
        """Return the codes of `size(dim)` bytes, shape (dim,); None if a bit that belongs to no code is set."""
        groups, used = -(-dim // self.count), self.bits * self.count
        padded = np.zeros(groups * self.width, np.uint8)
        padded[: len(raw)] = np.frombuffer(raw, np.uint8)
        whole = np.zeros((groups, 8), np.uint8)
        whole[:, : self.width] = padded.reshape(groups, self.width)
        words = whole.view("<u8").ravel()
        mask, out = np.uint64((1 << self.bits) - 1), np.empty((groups, self.count), np.uint8)
        for lane in range(self.count):
            out[:, lane] = (words >> np.uint64(self.bits * lane)) & mask
        stray = out.ravel()[dim:].any() or (used < 64 and (words >> np.uint64(used)).any())
        return None if stray else out.ravel()[:dim]
