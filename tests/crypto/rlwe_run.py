"""A run of threshold RLWE in one process, for tests: the ceremony once for each number of sites."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from consilia.core.randomness import SecretRng
from consilia.crypto.rlwe import RlweCipher, RlweSums
from consilia.crypto.rlwe_keys import Contribution, JointKey, KeyShare, contribute, joint_key
from consilia.crypto.rlwe_parameters import RlweParameters
from consilia.crypto.rlwe_threshold import Opening, combine, partial

RUN, ROUND = b"run of a test", b"round 1"


def rng(*labels: str | int) -> SecretRng:
    return SecretRng(bytes(32)).derive("rlwe test", *labels)


@cache
def contributions(sites: int, threshold: int) -> dict[int, Contribution]:
    parameters = RlweParameters(sites, threshold, sites, 1, 1)
    return {site: contribute(parameters, site, RUN, rng("key", site)) for site in range(1, sites + 1)}


@cache
def keys(sites: int, threshold: int) -> tuple[JointKey, dict[int, KeyShare]]:
    parameters, parts = RlweParameters(sites, threshold, sites, 1, 1), contributions(sites, threshold)
    joint = joint_key(
        parameters,
        RUN,
        {i: part.public for i, part in parts.items()},
        {i: part.commitment for i, part in parts.items()},
    )
    shares = {
        site: KeyShare.gather(parameters, site, {sender: part.shares[site] for sender, part in parts.items()})
        for site in parts
    }
    return joint, shares


@dataclass(frozen=True)
class Run:
    parameters: RlweParameters

    @property
    def sums(self) -> RlweSums:
        return RlweSums(self.parameters)

    def share(self, site: int) -> KeyShare:
        return keys(self.parameters.sites, self.parameters.threshold)[1][site]

    def cipher(self, site: int, context: bytes = ROUND) -> RlweCipher:
        joint, shares = keys(self.parameters.sites, self.parameters.threshold)
        return RlweCipher(self.parameters, joint, shares[site], context)

    def encrypt(self, vectors: Sequence[NDArray[np.int64]], context: bytes = ROUND) -> list[bytes]:
        return [self.cipher(i, context).encrypt(vector, rng("encrypt", i)) for i, vector in enumerate(vectors, 1)]

    def opening(self, contributors: Sequence[int], dim: int, decrypters: Sequence[int] | None = None) -> Opening:
        chosen = range(1, self.parameters.threshold + 1) if decrypters is None else decrypters
        return Opening(ROUND, dim, tuple(contributors), tuple(chosen))

    def answers(self, total: bytes, opening: Opening) -> dict[int, bytes]:
        masks = self.sums.to_open(total, opening.dim)
        return {
            site: partial(self.parameters, self.share(site), opening, masks, rng("flood", site), answered=set())
            for site in opening.decrypters
        }

    def open(self, total: bytes, opening: Opening) -> NDArray[np.int64]:
        return combine(self.sums, total, opening, self.answers(total, opening))
