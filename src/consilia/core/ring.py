"""Integers modulo a power of two: where sums are exact, whatever their order, and a mask hides a number completely."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilia.core.errors import PlanError, ProtocolError
from consilia.core.update import Bytes

Words = NDArray[np.unsignedinteger]

BITS = (16, 24, 32, 64)


@dataclass(frozen=True)
class Ring:
    """The integers modulo 2^bits, as unsigned words; numpy's own wrapping is the arithmetic.

    A ring of 24 bits is kept in words of 32 whose upper 8 bits mean nothing until they are cut at packing: 2^24 divides
    2^32, so sums of such words are right modulo 2^24 all the same.

    Attributes:
        bits: 16, 24, 32 or 64.

    Raises:
        PlanError: If bits is another number.
    """

    bits: int

    def __post_init__(self) -> None:
        if self.bits not in BITS:
            raise PlanError.of("a ring", needs=f"one of {', '.join(map(str, BITS))} bits", got=f"{self.bits}",
                               hint="Take the smallest that holds the sum")  # fmt: skip

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """Little-endian words that hold an element."""
        return np.dtype({16: "<u2", 24: "<u4", 32: "<u4", 64: "<u8"}[self.bits])

    @property
    def width(self) -> int:
        """Bytes of an element on the wire."""
        return self.bits // 8

    @property
    def largest(self) -> int:
        """The largest absolute value of a sum that can be read back: 2^(bits - 1) - 1."""
        return (1 << (self.bits - 1)) - 1

    def lift(self, values: NDArray[np.int64]) -> Words:
        """Return signed integers as elements of the ring, shape (d,); those out of range wrap."""
        return values.astype(self.dtype)  # a cast of integers keeps the lowest bits

    def center(self, words: Words) -> NDArray[np.int64]:
        """Return the elements as signed integers in [-2^(bits-1), 2^(bits-1)), shape (d,)."""
        if self.bits == 24:
            low = (words & np.uint32(0xFFFFFF)).astype(np.int64)
            return np.where(low >= 1 << 23, low - (1 << 24), low)
        return words.view(np.dtype(f"<i{self.width}")).astype(np.int64)

    def pack(self, words: Words) -> bytes:
        """Return the elements as bytes, `width` each, little-endian."""
        words = np.ascontiguousarray(words, dtype=self.dtype)
        if self.bits == 24:
            return words.view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
        return words.tobytes()

    def unpack(self, payload: Bytes, dim: int, *, who: str) -> Words:
        """Read back what `pack` wrote, shape (dim,); it may be read-only.

        Raises:
            ProtocolError: If the payload has another length.
        """
        if len(payload) != self.width * dim:
            raise ProtocolError.of(
                who, needs=f"{dim} elements of a ring of {self.bits} bits ({self.width * dim} bytes)",
                got=f"{len(payload)} bytes", hint="Both ends must have checked the same plan: compare their digests",
            )  # fmt: skip
        if self.bits == 24:
            wide = np.zeros((dim, 4), np.uint8)
            wide[:, :3] = np.frombuffer(payload, np.uint8).reshape(dim, 3)
            return wide.view("<u4").ravel()
        return np.frombuffer(payload, self.dtype)


def smallest(largest: int) -> Ring | None:
    """Return the smallest ring in which sums of absolute value up to `largest` can be read back; None if there is none."""
    return next((ring for ring in map(Ring, BITS) if largest <= ring.largest), None)
