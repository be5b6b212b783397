"""Threshold RLWE and TenSEAL, in turns: a sum of ten sites' vectors, step by step."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.study import Json
from benchmarks.timing.clock import digits, quartiles
from consilia.core.randomness import SecretRng
from consilia.crypto.rlwe import RlweCipher, RlweSums
from consilia.crypto.rlwe_keys import KeyShare, contribute, joint_key
from consilia.crypto.rlwe_parameters import RlweParameters
from consilia.crypto.rlwe_threshold import Opening, combine, partial

SITES, THRESHOLD = 10, 7
STEPS = ("encrypt", "write", "add", "answer", "open")
RUN, ROUND = b"a run", b"a round"
T = TypeVar("T")
Taken = dict[str, float]
Turn = Callable[[], Taken]


@dataclass(frozen=True)
class Peer:
    """A setting of TenSEAL.

    Attributes:
        scheme: CKKS or BFV.
        degree: Of the polynomials.
        moduli: Bits of the primes of CKKS; empty for BFV, which takes the library's own.
        scale: Bits of CKKS's scale; of BFV the plaintext modulus.
    """

    scheme: str
    degree: int
    moduli: tuple[int, ...]
    scale: int

    @property
    def slots(self) -> int:
        """Values in a ciphertext."""
        return self.degree // 2 if self.scheme == "CKKS" else self.degree


PEERS = {
    "CKKS 8192 [60, 40, 40]": Peer("CKKS", 8192, (60, 40, 40), 40),
    "CKKS 4096 [54, 54]": Peer("CKKS", 4096, (54, 54), 30),
    "BFV 4096": Peer("BFV", 4096, (), 1032193),
}


def threshold(bits: int, dim: int) -> tuple[Turn, Json]:
    """Return a turn of ours for values of `bits` bits, and what does not change from turn to turn.

    Encryption ends in bytes and addition begins with them, so that "write" is within "encrypt".
    """
    bound = 2 ** (bits - 1) - 1
    parameters = RlweParameters(SITES, THRESHOLD, SITES, bound, SITES)
    sites, stream = tuple(range(1, SITES + 1)), SecretRng(secrets.token_bytes(32))
    key_s, made = _timed(lambda: {site: contribute(parameters, site, RUN, stream) for site in sites})
    joint = joint_key(parameters, RUN, {i: part.public for i, part in made.items()},
                      {i: part.commitment for i, part in made.items()})  # fmt: skip
    shares = {
        site: KeyShare.gather(parameters, site, {i: part.shares[site] for i, part in made.items()}) for site in sites
    }
    ciphers = [RlweCipher(parameters, joint, shares[site], ROUND) for site in sites]
    vectors = _vectors(bound, dim)
    payloads = [cipher.encrypt(vector, stream) for cipher, vector in zip(ciphers, vectors, strict=True)]
    sums, opening = RlweSums(parameters), Opening(ROUND, dim, sites, sites[:THRESHOLD])

    def turn() -> Taken:
        encrypted, _ = _timed(lambda: ciphers[0].encrypt(vectors[0], stream))
        added, total = _timed(lambda: sums.add(payloads, dim))
        masks = sums.to_open(total, dim)
        answered, first = _timed(lambda: partial(parameters, shares[1], opening, masks, stream, answered=set()))
        answers = {
            site: partial(parameters, shares[site], opening, masks, stream, answered=set())
            for site in opening.decrypters
            if site != 1
        }
        opened, result = _timed(lambda: combine(sums, total, opening, {1: first, **answers}))
        if not np.array_equal(result, vectors.sum(axis=0)):
            raise SystemExit("threshold RLWE: the sum is not exact")
        return {"encrypt": encrypted, "write": 0.0, "add": added, "answer": answered, "open": opened}

    masks = sums.to_open(sums.add(payloads, dim), dim)
    answer = partial(parameters, shares[1], opening, masks, stream, answered=set())
    return turn, {
        "bits": bits, "bytes_a_value": digits(sums.expected_size(dim) / dim), "asked_bytes_a_value": digits(len(masks) / dim),
        "answer_bytes_a_value": digits(len(answer) / dim), "flood_bits": parameters.flood, "key_s_a_site": digits(key_s / SITES),
    }  # fmt: skip


def tenseal(peer: Peer, dim: int) -> tuple[Turn, Json]:
    """Return a turn of TenSEAL with one key, values of 16 bits; vectors are lists, which it takes without a copy of ours."""
    ts: Any = import_module("tenseal")
    if peer.scheme == "CKKS":
        context = ts.context(
            ts.SCHEME_TYPE.CKKS, poly_modulus_degree=peer.degree, coeff_mod_bit_sizes=list(peer.moduli), n_threads=1
        )
        context.global_scale = 2**peer.scale
        encrypt, read, unit = ts.ckks_vector, ts.ckks_vector_from, 2.0**15
    else:
        context = ts.context(ts.SCHEME_TYPE.BFV, poly_modulus_degree=peer.degree, plain_modulus=peer.scale, n_threads=1)
        encrypt, read, unit = ts.bfv_vector, ts.bfv_vector_from, 1
    vectors = _vectors(2**15 - 1, dim)
    scaled = (vectors / unit if peer.scheme == "CKKS" else vectors).tolist()
    parts = [[vector[start : start + peer.slots] for start in range(0, dim, peer.slots)] for vector in scaled]
    payloads = [[encrypt(context, part).serialize() for part in vector] for vector in parts]

    def add() -> list[Any]:
        totals = [read(context, payload) for payload in payloads[0]]
        for vector in payloads[1:]:
            for total, payload in zip(totals, vector, strict=True):
                total += read(context, payload)
        return totals

    def turn() -> Taken:
        encrypted, vector = _timed(lambda: [encrypt(context, part) for part in parts[0]])
        written, _ = _timed(lambda: [part.serialize() for part in vector])
        added, totals = _timed(add)
        opened, result = _timed(lambda: [value for total in totals for value in total.decrypt()])
        errors.append(float(np.abs(np.array(result) * unit - vectors.sum(axis=0)).max()))
        return {"encrypt": encrypted, "write": written, "add": added, "answer": 0.0, "open": opened}

    errors: list[float] = []
    turn()
    return turn, {
        "bits": 16, "bytes_a_value": digits(sum(map(len, payloads[0])) / dim), "error_of_the_sum": digits(max(errors)),
    }  # fmt: skip


def compare(dim: int, turns: int, names: tuple[str, ...] = tuple(PEERS)) -> Json:
    """Time all of them in turns; a ratio is that of neighbours in one turn, to ours on values of 16 bits.

    Args:
        dim: Values of a vector.
        turns: Of each.
        names: Which settings of TenSEAL; none is run where it is not installed.
    """
    found = {f"{bits} bits": threshold(bits, dim) for bits in (16, 20, 27)}
    if find_spec("tenseal"):
        found |= {name: tenseal(PEERS[name], dim) for name in names}
    for turn, _ in found.values():
        turn()
    taken: dict[str, list[Taken]] = {name: [] for name in found}
    for _ in range(turns):
        for name, (turn, _) in found.items():
            taken[name].append(turn())
    return {
        "values": dim, "turns": turns, "sites": SITES, "threshold": THRESHOLD,
        "schemes": {
            name: {
                **told, **{f"{step}_s": quartiles([one[step] for one in taken[name]]) for step in STEPS},
                "encrypt_ratio": quartiles([
                    one["encrypt"] / base["encrypt"] for one, base in zip(taken[name], taken["16 bits"], strict=True)
                ]),
            } for name, (_, told) in found.items()
        },
    }  # fmt: skip


def _vectors(bound: int, dim: int) -> NDArray[np.int64]:
    return np.random.default_rng(1).integers(-bound, bound, (SITES, dim), endpoint=True)


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    started = time.process_time()
    result = work()
    return time.process_time() - started, result
