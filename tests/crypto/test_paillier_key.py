"""The one key: how it is made, kept and handed on, and that it is the same without GMP."""

import hashlib
import json
import math
import subprocess
import sys

import gmpy2
import pytest
from tests.crypto.paillier_run import real_key

from consilia.core.errors import PlanError, ProtocolError
from consilia.core.randomness import SecretRng
from consilia.crypto.paillier_key import LIMIT, PaillierKey, keypair, require_key_bits
from consilia.crypto.paillier_primes import is_prime, prime


def test_a_key_has_the_bits_it_was_asked_for() -> None:
    key = real_key()
    assert key.public.bits == 2048
    assert key.p.bit_length() == key.q.bit_length() == 1024
    assert key.p % 4 == key.q % 4 == 3
    assert math.gcd(key.p - 1, key.q - 1) == 2
    assert math.gcd(key.public.n, (key.p - 1) * (key.q - 1)) == 1
    assert gmpy2.is_prime(key.p, 40)
    assert gmpy2.is_prime(key.q, 40)


@pytest.mark.parametrize("bits", [0, 512, 1024, 2032, 2049, 2056, 8208, 10**6])
def test_short_and_odd_keys_are_refused(bits: int) -> None:
    with pytest.raises(PlanError, match=f"112 bits of security.*got {bits}.*Take 3072"):
        keypair(bits, SecretRng(bytes(32)))
    with pytest.raises(PlanError):
        require_key_bits(bits)


def test_allowed_lengths() -> None:
    for bits in (2048, 3072, 4096, 8192):
        require_key_bits(bits)


def test_a_stream_makes_one_key() -> None:
    primes = [prime(256, SecretRng(bytes(31) + bytes([i]))) for i in (1, 1, 2)]
    assert primes[0] == primes[1] != primes[2]


@pytest.mark.parametrize("bits", [32, 64, 256])
def test_primes_are_prime_and_long(bits: int) -> None:
    stream = SecretRng(bytes(32))
    for _ in range(5):
        found = prime(bits, stream)
        assert gmpy2.is_prime(found, 40)
        assert found % 4 == 3
        assert found >> (bits - 2) == 3


def test_liars_are_no_primes() -> None:
    carmichael = (561, 41041, 825265, 321197185)
    strong_base_2 = (2047, 3215031751, 3825123056546413051)
    lucas = (5459, 5777, 10877)
    assert not any(map(is_prime, carmichael + strong_base_2 + lucas))
    assert all(map(is_prime, (2, 1000003, 2**127 - 1)))


def test_a_key_is_handed_on_in_bytes() -> None:
    key = real_key()
    assert len(key.to_bytes()) == 256
    assert PaillierKey.from_bytes(memoryview(key.to_bytes()), who="a sealed key") == key


def test_keys_that_nobody_would_make_are_refused() -> None:
    key = real_key()
    p, q = key.p.to_bytes(128, "big"), key.q.to_bytes(128, "big")
    one_mod_4 = int(gmpy2.next_prime(key.p))
    while one_mod_4 % 4 != 1:
        one_mod_4 = int(gmpy2.next_prime(one_mod_4))
    bad = {
        "empty": b"", "cut": (p + q)[:-1], "long": p + q + b"\0\0", "equal primes": p + p, "zeros": bytes(256),
        "composite": p + (key.q + 4).to_bytes(128, "big"), "1 mod 4": p + one_mod_4.to_bytes(128, "big"),
        "1024 bits": (p + q)[:128], "a short prime": p + prime(512, SecretRng(bytes(32))).to_bytes(128, "big"),
        "huge": bytes(100_000),
    }  # fmt: skip
    for kind, payload in bad.items():
        with pytest.raises(ProtocolError, match="a sealed key needs a Paillier key of 2048 to 8192 bits"):
            pytest.fail(f"{kind}: {PaillierKey.from_bytes(payload, who='a sealed key')}")


def test_primes_that_do_not_fit_together_are_told() -> None:
    assert PaillierKey(23, 31).sound()
    assert not PaillierKey(19, 31).sound()  # 18 and 30 share 6
    assert not PaillierKey(31, 31).sound()
    assert not PaillierKey(19, 23).sound()  # 437 has 9 bits
    assert not PaillierKey(29, 31).sound()  # 29 is 1 mod 4


def test_a_key_prints_none_of_itself() -> None:
    key = real_key()
    for number in (key.p, key.q):
        assert str(number) not in f"{key!r} {key}"
        assert f"{number:x}" not in f"{key!r} {key}"


def test_what_is_public_holds_no_prime() -> None:
    key = real_key()
    for number in (key.p, key.q):
        for form in (number.to_bytes(128, "big"), number.to_bytes(128, "little")):
            assert form not in key.public.to_bytes()


def test_the_limit_names_who_can_open_what() -> None:
    assert "Any one site together with the coordinator" in LIMIT
    assert "the two decrypt every site's update" in LIMIT


_RUN = """
import hashlib, json, sys
if sys.argv[1] == "without":
    sys.modules["gmpy2"] = None
import numpy as np
from consilia.core.randomness import SecretRng
from consilia.crypto import paillier_integers
from consilia.crypto.paillier import PaillierCipher
from consilia.crypto.paillier_key import PaillierKey
from consilia.crypto.paillier_lanes import Lanes
from consilia.crypto.paillier_opening import Opening
from consilia.crypto.paillier_primes import prime
stream = SecretRng(bytes(32))
key = PaillierKey(prime(256, stream), prime(256, stream))
lanes = Lanes(512, 2**15 - 1, 10)
ciphers = [PaillierCipher(key.public, lanes, key.group, b"round", site) for site in (1, 2)]
total = ciphers[0].add([ciphers[i].encrypt(np.arange(60) * (1 - 4 * i), stream) for i in (0, 1)], 60)
opening = Opening(b"round", 60, (1, 2), (1, 2), 2)
opened = key.decrypt(total, opening, lanes=lanes, site=opening.opener, answered=set())
print(json.dumps([paillier_integers.gmpy2 is not None, key.p, hashlib.sha256(total).hexdigest(), opened.tolist()]))
"""


def test_the_bytes_are_the_same_without_gmp() -> None:
    found = {
        how: json.loads(subprocess.run([sys.executable, "-c", _RUN, how], stdout=subprocess.PIPE, check=True).stdout)
        for how in ("with", "without")
    }
    assert found["with"][0]
    assert not found["without"][0]
    assert found["with"][1:] == found["without"][1:]
    assert found["with"][3] == [-2 * i for i in range(60)]
    assert len(found["with"][2]) == 2 * hashlib.sha256().digest_size
