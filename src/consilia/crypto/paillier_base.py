"""Powers of one fixed base with a table: a multiplication for each byte of the exponent, no squarings."""

from consilia.crypto.paillier_integers import number


class FixedBase:
    """All base^(v 256^i) mod modulus for byte values v and byte positions i < size.

    The table holds 256 x size numbers: 13 MB for 64 bytes of exponent and a 6144-bit modulus.
    Which entry is read depends on the exponent, so another process on the same processor that can watch its caches may
    learn something about it: this is not constant time.

    Source:
        Brickell, Gordon, McCurley and Wilson (1992), Fast exponentiation with precomputation.
    """

    def __init__(self, base: int, modulus: int, size: int) -> None:
        self._modulus = number(modulus)
        self._table: list[list[int]] = []
        step = number(base)
        for _ in range(size):
            row = [number(1)]
            for _ in range(255):
                row.append(row[-1] * step % self._modulus)
            self._table.append(row)
            step = row[-1] * step % self._modulus

    def power(self, exponent: bytes) -> int:
        """Return base^exponent mod modulus; the exponent is little-endian, of `size` bytes."""
        result = number(1)
        for row, digit in zip(self._table, exponent, strict=True):
            result = result * row[digit] % self._modulus
        return result
