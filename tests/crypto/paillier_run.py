"""A run of packed Paillier in one process, for tests: one key, any number of sites."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from consilia.core.randomness import SecretRng
from consilia.crypto.paillier import PaillierCipher, PaillierSums
from consilia.crypto.paillier_key import PaillierKey, keypair
from consilia.crypto.paillier_lanes import Lanes
from consilia.crypto.paillier_opening import Opening

ROUND = b"round 1"
P, Q = 1000003, 1000667  # both 3 mod 4; 1000002 and 1000666 share 2 only: a toy, quick and insecure
TOY = PaillierKey(P, Q)


def rng(*labels: str | int) -> SecretRng:
    return SecretRng(bytes(32)).derive("paillier test", *labels)


@cache
def real_key() -> PaillierKey:
    return keypair(2048, rng("key"))


@dataclass(frozen=True)
class Run:
    key: PaillierKey
    lanes: Lanes

    @classmethod
    def toy(cls, bound: int = 5, count: int = 3) -> "Run":
        return cls(TOY, Lanes(TOY.public.bits, bound, count))

    @classmethod
    def real(cls, bound: int = 2**15 - 1, count: int = 10) -> "Run":
        return cls(real_key(), Lanes(2048, bound, count))

    @property
    def sums(self) -> PaillierSums:
        return PaillierSums(self.key.public, self.lanes)

    def cipher(self, site: int, context: bytes = ROUND) -> PaillierCipher:
        return PaillierCipher(self.key.public, self.lanes, self.key.group, context, site)

    def encrypt(self, vectors: Sequence[NDArray[np.int64]], context: bytes = ROUND) -> list[bytes]:
        return [self.cipher(i, context).encrypt(vector, rng("encrypt", i)) for i, vector in enumerate(vectors, 1)]

    def opening(self, contributors: Sequence[int], dim: int, context: bytes = ROUND) -> Opening:
        return Opening(context, dim, tuple(range(1, self.lanes.count + 1)), tuple(contributors), 1)

    def open(self, total: bytes, opening: Opening) -> NDArray[np.int64]:
        return self.key.decrypt(total, opening, lanes=self.lanes, site=opening.opener, answered=set())
