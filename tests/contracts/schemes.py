"""Every implementation of `SumCipher`, with a way to open its sums: what `test_sum_cipher` runs over."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tests.crypto import paillier_run, rlwe_run

from consilia.crypto.cipher import SumCipher
from consilia.crypto.rlwe_parameters import RlweParameters


@dataclass(frozen=True)
class Scheme:
    """Sums of up to `count` vectors within a bound, of sites numbered from 1.

    Attributes:
        at: The half of the site with this number.
        open: (total, sites whose vectors are in it, dim) -> the sum, shape (dim,).
    """

    at: Callable[[int], SumCipher]
    open: Callable[[bytes, Sequence[int], int], NDArray[np.int64]]


def paillier(bound: int, count: int) -> Scheme:
    run = paillier_run.Run.real(bound, count)
    return Scheme(run.cipher, lambda total, sites, dim: run.open(total, run.opening(sites, dim)))


def rlwe(bound: int, count: int) -> Scheme:
    sites = max(count, 2)
    run = rlwe_run.Run(RlweParameters(sites, sites // 2 + 1, count, bound, 1))
    return Scheme(run.cipher, lambda total, contributors, dim: run.open(total, run.opening(contributors, dim)))


SCHEMES: dict[str, Callable[[int, int], Scheme]] = {"paillier": paillier, "rlwe": rlwe}
