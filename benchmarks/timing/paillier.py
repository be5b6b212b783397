"""Packed Paillier and `phe`, one value a ciphertext, in turns: a sum of ten sites' vectors, step by step."""

import json
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.study import ROOT, Json
from benchmarks.timing.clock import digits, quartiles
from consilia.core.randomness import SecretRng
from consilia.crypto.paillier import PaillierCipher
from consilia.crypto.paillier_key import PaillierKey, keypair
from consilia.crypto.paillier_lanes import Lanes
from consilia.crypto.paillier_opening import Opening

SITES = 10
BOUND = 2**15 - 1  # values of 16 bits
STEPS = ("encrypt", "add", "decrypt")
ROUND = b"a round"
T = TypeVar("T")
Taken = dict[str, float]
Turn = Callable[[], Taken]


def packed(key: PaillierKey, dim: int) -> Turn:
    """Return a turn of ours: CPU seconds of one site's encryption, of adding ten vectors, and of opening the sum."""
    lanes, stream = Lanes(key.public.bits, BOUND, SITES), SecretRng(secrets.token_bytes(32))
    sites = tuple(range(SITES))
    ciphers = [PaillierCipher(key.public, lanes, key.group, ROUND, site) for site in sites]
    vectors = _vectors(dim)
    payloads = [cipher.encrypt(vector, stream) for cipher, vector in zip(ciphers, vectors, strict=True)]
    opening = Opening(ROUND, dim, sites, sites, SITES)

    def turn() -> Taken:
        encrypted, _ = _timed(lambda: ciphers[0].encrypt(vectors[0], stream))
        added, total = _timed(lambda: ciphers[0].add(payloads, dim))
        opened, result = _timed(lambda: key.decrypt(total, opening, lanes=lanes, site=opening.opener, answered=set()))
        if not np.array_equal(result, vectors.sum(axis=0)):
            raise SystemExit("packed Paillier: the sum is not exact")
        return {"encrypt": encrypted, "add": added, "decrypt": opened}

    return turn


def one_by_one(bits: int, dim: int) -> Turn:
    """Return a turn of `phe`, as its documentation uses it: one integer a ciphertext."""
    phe: Any = import_module("phe")
    public, private = phe.generate_paillier_keypair(n_length=bits)
    vectors = [[int(value) for value in vector] for vector in _vectors(dim)]
    first = [public.encrypt(value) for value in vectors[0]]
    # Ten encryptions of each vector would only prolong the run: what the others add is the same work whatever it holds.
    second = [public.encrypt(value) for value in vectors[1]]

    def add() -> list[Any]:
        total = first
        for _ in range(SITES - 1):
            total = [a + b for a, b in zip(total, second, strict=True)]
        return total

    def turn() -> Taken:
        encrypted, _ = _timed(lambda: [public.encrypt(value).ciphertext() for value in vectors[0]])
        added, total = _timed(add)
        opened, result = _timed(lambda: [private.decrypt(value) for value in total])
        if result != [a + (SITES - 1) * b for a, b in zip(*vectors[:2], strict=True)]:
            raise SystemExit("phe: the sum is not exact")
        return {"encrypt": encrypted, "add": added, "decrypt": opened}

    return turn


def compare(bits: int, dim: int, few: int, turns: int) -> Json:
    """Time ours on `dim` values and `phe` on a few, in turns; ratios are those of neighbours, a value.

    Args:
        bits: Length of both moduli.
        dim: Values of a vector, ours.
        few: Values of a vector, where each is a ciphertext.
        turns: Of each.
    """
    made, key = _timed(lambda: keypair(bits, SecretRng(secrets.token_bytes(32))))
    table, _ = _timed(lambda: key.public.masks)
    lanes = Lanes(bits, BOUND, SITES)
    ours, theirs = packed(key, dim), one_by_one(bits, few) if find_spec("phe") else None
    taken = [(ours(), theirs() if theirs else None) for _ in range(turns)]
    found: Json = {
        "values": dim, "turns": turns, "lane_bits": lanes.width, "lanes": lanes.per_plaintext,
        "bytes_a_value": digits(lanes.size(dim) / dim), "key_s": digits(made), "table_s": digits(table),
        **{f"{step}_s": quartiles([mine[step] for mine, _ in taken]) for step in STEPS},
        "without_gmp": without_gmp(key, max(dim // 50, lanes.per_plaintext)),
    }  # fmt: skip
    pairs = [(mine, other) for mine, other in taken if other]
    if pairs:
        found["phe"] = {
            "values": few, "bytes_a_value": bits / 4,
            **{f"{step}_s_a_value": quartiles([other[step] / few for _, other in pairs]) for step in STEPS},
            **{f"{step}_times": quartiles([_value(other, few, step) / _value(mine, dim, step) for mine, other in pairs])
               for step in (*STEPS, "sum")},
        }  # fmt: skip
    return found


def without_gmp(key: PaillierKey, dim: int) -> Json:
    """Return what a turn takes without gmpy2, in a process of its own, and what it takes with it, a value."""
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT, str(dim)], input=key.to_bytes().hex(), stdout=subprocess.PIPE, text=True, cwd=ROOT,
        check=True,
    )  # fmt: skip
    slow, quick = json.loads(done.stdout), packed(key, dim)()
    return {"values": dim, **{f"{step}_times": digits(slow[step] / quick[step]) for step in STEPS}}


_WITHOUT = """
import json, sys
sys.modules["gmpy2"] = None
from benchmarks.timing.paillier import PaillierKey, packed
print(json.dumps(packed(PaillierKey.from_bytes(bytes.fromhex(sys.stdin.read()), who="a key"), int(sys.argv[1]))()))
"""


def _value(taken: Taken, values: int, step: str) -> float:
    """Return CPU seconds a value; "sum" is the whole way: ten sites encrypt, one adds, one opens."""
    if step == "sum":
        return (SITES * taken["encrypt"] + taken["add"] + taken["decrypt"]) / values
    return taken[step] / values


def _vectors(dim: int) -> NDArray[np.int64]:
    return np.random.default_rng(1).integers(-BOUND, BOUND, (SITES, dim), endpoint=True)


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    started = time.process_time()
    result = work()
    return time.process_time() - started, result
