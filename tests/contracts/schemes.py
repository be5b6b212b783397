"""Every implementation of `SumCipher`, with a way to open its sums: what `test_sum_cipher` runs over."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from consilia.core.randomness import SecretRng
from consilia.crypto.cipher import SumCipher
from consilia.crypto.paillier import PaillierCipher
from consilia.crypto.paillier_key import PaillierKey, keypair
from consilia.crypto.paillier_lanes import Lanes


@dataclass(frozen=True)
class Scheme:
    """A cipher for vectors within its bound, and what opens a total of `added` of them: (total, dim, added) -> (dim,)."""

    cipher: SumCipher
    open: Callable[[bytes, int, int], NDArray[np.int64]]


@cache
def paillier_key() -> PaillierKey:
    return keypair(2048, SecretRng(b"a key for tests".ljust(32)))


def paillier(bound: int, count: int) -> Scheme:
    key, lanes = paillier_key(), Lanes(2048, bound, count)
    return Scheme(
        PaillierCipher(key.public, lanes), lambda total, dim, added: key.decrypt(total, dim, lanes=lanes, added=added)
    )


SCHEMES: dict[str, Callable[[int, int], Scheme]] = {"paillier": paillier}
