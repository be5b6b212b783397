"""Polynomials on the wire: 30 bits a residue, 15360 bytes a polynomial."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consilia.core.errors import ProtocolError
from consilia.core.update import Bytes
from consilia.crypto.rlwe_field import Residues
from consilia.crypto.rlwe_ntt import DEGREE, GROUP, SIDE

POLYNOMIAL = DEGREE * 30 // 8  # bytes
_ROWS = GROUP * DEGREE // 4  # of four residues, at a time
_BITS = np.uint64(30)
_PAIR = np.uint64((1 << 60) - 1)
_ONE = np.uint64((1 << 30) - 1)


def pack(polynomials: Residues) -> bytes:
    """Return polynomials of residues below 2^30, shape (..., 64, 64), as bytes: four residues fill 15."""
    rows = np.ascontiguousarray(polynomials).reshape(-1, 4)
    octets = np.empty((len(rows), 15), np.uint8)
    for start in range(0, len(rows), _ROWS):
        part = rows[start : start + _ROWS].astype("<u8")
        first, second = part[:, 0] | (part[:, 1] << _BITS), part[:, 2] | (part[:, 3] << _BITS)
        words = np.empty((len(part), 2), "<u8")
        words[:, 0] = first | (second << np.uint64(60))
        words[:, 1] = second >> np.uint64(4)
        octets[start : start + _ROWS] = words.view(np.uint8)[:, :15]
    return octets.tobytes()


def unpack(payload: Bytes, primes: Sequence[int], count: int, *, who: str) -> Residues:
    """Read `count` polynomials modulo each prime, shape (primes, count, 64, 64).

    Raises:
        ProtocolError: If the payload has another length, or a number in it is no residue.
    """
    size = len(primes) * count * POLYNOMIAL
    if len(payload) != size:
        raise malformed(who, f"{len(primes)} x {count} polynomials ({size} bytes)", f"{len(payload)} bytes")
    residues = np.empty((len(primes), count, SIDE, SIDE), np.uint32)
    octets = np.frombuffer(payload, np.uint8).reshape(len(primes), -1, 15)
    for packed, p, found in zip(octets, primes, residues, strict=True):
        rows = found.reshape(-1, 4)
        for start in range(0, len(rows), _ROWS):
            _spread(packed[start : start + _ROWS], rows[start : start + _ROWS])
        if int(found.max()) >= p:
            raise malformed(who, "residues below their prime", "a number that is none")
    return residues


def _spread(packed: NDArray[np.uint8], out: Residues) -> None:
    """Write the residues in rows of 15 bytes, shape (n, 15), to `out`, shape (n, 4)."""
    wide = np.zeros((len(packed), 16), np.uint8)
    wide[:, :15] = packed
    words = wide.view("<u8")
    first, second = words[:, 0] & _PAIR, (words[:, 0] >> np.uint64(60)) | (words[:, 1] << np.uint64(4))
    for place, pair in ((0, first), (2, second)):
        out[:, place] = pair & _ONE
        out[:, place + 1] = pair >> _BITS


def malformed(who: str, needs: str, got: str) -> ProtocolError:
    """Return the error for what no honest peer sends."""
    return ProtocolError.of(
        who, needs=needs, got=got, hint="Both ends must have checked the same plan and hold the same key"
    )
