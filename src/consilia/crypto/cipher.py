"""The port of the homomorphic schemes: vectors of integers that can be added while nobody who adds them can read them."""

from collections.abc import Iterable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from consilia.core.errors import PlanError
from consilia.core.randomness import SecretRng
from consilia.core.update import Bytes


class SumCipher(Protocol):
    """The public half of an additively homomorphic scheme, for sums of up to `count` vectors of small integers.

    Both ends make it from the plan's numbers; a number that the scheme cannot hold is refused there, before anything is
    sent. Opening a sum is no part of it: Paillier takes one key, threshold RLWE the answers of several sites.

    Guarantees:
        Sums are exact for up to `count` vectors whose coordinates lie in [-bound, bound].
    """

    @property
    def bound(self) -> int:
        """Largest absolute value of a coordinate of one vector."""

    @property
    def count(self) -> int:
        """Largest number of vectors in a sum."""

    def encrypt(self, values: NDArray[np.int64], rng: SecretRng) -> bytes:
        """Encrypt a vector of shape (d,), d >= 1, as `expected_size(d)` bytes.

        Raises:
            PlanError: If the vector is not of this shape and type, or a coordinate is beyond the bound.
        """

    def add(self, payloads: Iterable[Bytes], dim: int) -> bytes:
        """Return the encrypted sum of encrypted vectors of length `dim`, `expected_size(dim)` bytes.

        A payload may be a sum itself, so that a total can grow by one vector at a time and a bad one leaves it as it was.

        Raises:
            ProtocolError: If there is no payload, there are more than `count`, or one has another length or holds
                something that is no ciphertext.
        """

    def expected_size(self, dim: int) -> int:
        """Return the bytes of an encrypted vector of length `dim`, and of a sum of them."""


def require_bounded(values: NDArray[np.int64], bound: int) -> None:
    """Refuse what is no vector of shape (d,), d >= 1, of int64 within [-bound, bound].

    Raises:
        PlanError: Naming the largest absolute value found.
    """
    if values.dtype != np.int64 or values.ndim != 1 or not values.size:
        raise PlanError.of(
            "a vector to encrypt", needs="shape (d,) with d >= 1 and type int64",
            got=f"shape {values.shape} and type {values.dtype}", hint="Encode it on the plan's grid first",
        )  # fmt: skip
    largest = max(int(values.max()), -int(values.min()))  # in Python: -(-2^63) is no int64
    if largest > bound:
        raise PlanError.of(
            "a vector to encrypt", needs=f"coordinates of absolute value at most {bound}", got=f"{largest}",
            hint="Clip the update, or plan for a larger range",
        )  # fmt: skip
