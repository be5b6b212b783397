"""Many small integers in one long one: lanes that never run into each other while they are added."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilia.core.errors import PlanError, ProtocolError

_LARGEST = (1 << 63) - 1  # a sum is read back as int64


@dataclass(frozen=True)
class Lanes:
    """How vectors lie in plaintexts below a modulus of `bits` bits.

    Lane 0 of a vector holds 1, so that the lane of a sum says how many vectors are in it; lane i holds value i - 1 plus
    `bound`, which is never negative. Sums of up to `count` of them stay below 2^width: no lane carries into the next.

    Attributes:
        bits: Bits of the modulus, its highest bit set.
        bound: Largest absolute value of a coordinate of one vector.
        count: Largest number of vectors in a sum.

    Raises:
        PlanError: If a lane cannot hold the sum.
    """

    bits: int
    bound: int
    count: int

    def __post_init__(self) -> None:
        if self.bound < 1 or self.count < 1:
            raise PlanError.of("lanes of a plaintext", needs="a bound and a count of at least 1",
                               got=f"bound {self.bound}, count {self.count}", hint="")  # fmt: skip
        widest = min(self.bits - 1, _LARGEST.bit_length())
        if self.width > widest:
            raise PlanError.of(
                "lanes of a plaintext", needs=f"sums that fit {widest} bits",
                got=f"{self.count} vectors of values up to {self.bound}, whose sums take {self.width} bits",
                hint="Plan for fewer sites, a smaller range or a coarser resolution",
            )  # fmt: skip

    @property
    def width(self) -> int:
        """Bits of a lane; for a bound of 2^(b - 1) - 1 at most b + ceil(log2(count))."""
        return (2 * self.bound * self.count).bit_length()

    @property
    def per_plaintext(self) -> int:
        """Lanes in one plaintext; all together stay below the modulus."""
        return (self.bits - 1) // self.width

    def plaintexts(self, dim: int) -> int:
        """Return how many plaintexts hold a vector of length `dim`."""
        return -(-(dim + 1) // self.per_plaintext)

    def size(self, dim: int) -> int:
        """Return the bytes of an encrypted vector of length `dim`, or of a sum: its ciphertexts and its tag."""
        return self.plaintexts(dim) * ciphertext_size(self.bits) + tag_size(self.bits)

    def pack(self, values: NDArray[np.int64]) -> list[int]:
        """Return the plaintexts of a vector of shape (d,) within the bound; unused lanes are 0."""
        rows = self.plaintexts(len(values))
        lanes = np.zeros(rows * self.per_plaintext, "<u8")
        lanes[0] = 1
        lanes[1 : len(values) + 1] = values + self.bound
        bits = np.unpackbits(lanes.view(np.uint8).reshape(-1, 8), axis=1, count=self.width, bitorder="little")
        packed = np.packbits(bits.reshape(rows, -1), axis=1, bitorder="little")
        return [int.from_bytes(row.tobytes(), "little") for row in packed]

    def unpack(self, plaintexts: Sequence[int], dim: int, *, added: int) -> NDArray[np.int64]:
        """Return the sum of the `added` vectors of length `dim` in these plaintexts, shape (dim,).

        Raises:
            ProtocolError: If the plaintexts are not such a sum: another number of vectors, a lane larger than they can
                make it, or something outside the lanes.
        """
        used = self.per_plaintext * self.width
        if not 1 <= added <= self.count or any(plaintext >> used for plaintext in plaintexts):
            raise self._no_sum(added, f"a number beyond {self.per_plaintext} lanes of {self.width} bits")
        size = -(-used // 8)
        packed = np.frombuffer(b"".join(int(plaintext).to_bytes(size, "little") for plaintext in plaintexts), np.uint8)
        bits = np.unpackbits(packed.reshape(-1, size), axis=1, count=used, bitorder="little").reshape(-1, self.width)
        words = np.zeros((len(bits), 8), np.uint8)
        words[:, : -(-self.width // 8)] = np.packbits(bits, axis=1, bitorder="little")
        lanes = words.view("<u8").ravel()
        if lanes[0] != added:
            raise self._no_sum(added, f"{lanes[0]} vectors in it")
        if lanes[1 : dim + 1].max() > 2 * self.bound * added or lanes[dim + 1 :].any():
            raise self._no_sum(added, "a lane that such vectors cannot make")
        return lanes[1 : dim + 1].astype(np.int64) - self.bound * added

    def _no_sum(self, added: int, got: str) -> ProtocolError:
        return ProtocolError.of(
            "a decrypted sum", needs=f"{added} vectors (1 to {self.count}) of values up to {self.bound} in every lane",
            got=got, hint="The coordinator added something else than the sites' vectors: do not use this sum",
        )  # fmt: skip


def ciphertext_size(bits: int) -> int:
    """Return the bytes of a number modulo n^2, for an n of `bits` bits."""
    return -(-bits // 4)


def tag_size(bits: int) -> int:
    """Return the bytes of a number modulo n."""
    return -(-bits // 8)
