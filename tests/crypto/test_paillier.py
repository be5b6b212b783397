"""Packed Paillier against the textbook, and what it refuses."""

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.schemes import paillier_key

from consilia.core.errors import PlanError, ProtocolError
from consilia.core.randomness import SecretRng
from consilia.crypto.paillier import PaillierCipher
from consilia.crypto.paillier_base import FixedBase
from consilia.crypto.paillier_key import PaillierKey
from consilia.crypto.paillier_lanes import Lanes
from consilia.crypto.paillier_public import PaillierPublic

P, Q = 1000003, 1000667  # both 3 mod 4; 1000002 and 1000666 share 2 only
KEY = PaillierKey(P, Q)
LANES = Lanes(KEY.public.bits, 5, 3)


def rng(label: int = 0) -> SecretRng:
    return SecretRng(bytes(32)).derive(label)


def textbook_encrypt(n: int, message: int, r: int) -> int:
    return pow(n + 1, message, n * n) * pow(r, n, n * n) % (n * n)


def textbook_decrypt(p: int, q: int, ciphertext: int) -> int:
    n, order = p * q, math.lcm(p - 1, q - 1)
    logarithm = (pow(ciphertext, order, n * n) - 1) // n
    return logarithm * pow((pow(n + 1, order, n * n) - 1) // n, -1, n) % n


def test_a_small_key_worked_by_hand() -> None:
    """p = 7, q = 11, r = 23: three lanes of two bits hold 1 (the count), 1 + 1 and -1 + 1, which is 1 + 2 x 4 = 9."""
    key, lanes = PaillierKey(7, 11), Lanes(7, 1, 1)
    assert lanes.pack(np.array([1, -1])) == [9]
    ciphertext = (1 + 9 * 77) * pow(23, 77, 5929) % 5929
    assert ciphertext == 694 * 606 % 5929 == 5534 == textbook_encrypt(77, 9, 23)
    assert textbook_decrypt(7, 11, 5534) == 9
    assert key.decrypt((5534).to_bytes(2, "big"), 2, lanes=lanes, added=1).tolist() == [1, -1]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-5, 5), min_size=1, max_size=40), st.integers(0, 1000))
def test_the_textbook_reads_what_the_cipher_writes(values: list[int], label: int) -> None:
    payload = PaillierCipher(KEY.public, LANES).encrypt(np.array(values, np.int64), rng(label))
    read = KEY.public.read(payload, LANES.plaintexts(len(values)), who="a payload")
    assert [textbook_decrypt(P, Q, int(c)) for c in read] == LANES.pack(np.array(values, np.int64))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(-5, 5), min_size=20, max_size=20), min_size=1, max_size=3), st.integers(2, 10**6))
def test_the_key_reads_what_the_textbook_writes(vectors: list[list[int]], r: int) -> None:
    payloads = [
        KEY.public.write(
            textbook_encrypt(KEY.public.n, plain, r + i) for plain in LANES.pack(np.array(vector, np.int64))
        )
        for i, vector in enumerate(vectors)
    ]
    total = PaillierCipher(KEY.public, LANES).add(payloads, 20)
    opened = KEY.decrypt(total, 20, lanes=LANES, added=len(vectors))
    assert opened.tolist() == np.sum(vectors, axis=0).tolist()


def test_a_power_from_the_table_is_a_power() -> None:
    table = FixedBase(12345, 10**9 + 7, 3)
    for exponent in (0, 1, 255, 256, 0xABCDEF, 0xFFFFFF):
        assert table.power(exponent.to_bytes(3, "little")) == pow(12345, exponent, 10**9 + 7)
    with pytest.raises(ValueError, match="shorter"):
        table.power(b"\1\2")


def test_masks_are_nth_residues_of_a_square_class_that_nobody_chose() -> None:
    """h_s = h^n with h = -x^2: a non-residue modulo both primes, so its Jacobi symbol tells nothing."""
    one = (1).to_bytes(64, "little")
    mask = int(paillier_key().public.masks.power(one))
    p, q, n = paillier_key().p, paillier_key().q, paillier_key().public.n
    assert pow(mask, (p - 1) // 2, p) == p - 1
    assert pow(mask, (q - 1) // 2, q) == q - 1
    assert pow(mask, math.lcm(p - 1, q - 1), n * n) == 1  # an n-th residue: it adds nothing to a plaintext


def test_every_ciphertext_has_a_mask_of_its_own() -> None:
    key = paillier_key()
    lanes = Lanes(2048, 2**15 - 1, 10)
    payload = PaillierCipher(key.public, lanes).encrypt(np.zeros(102 * 40, np.int64), rng())
    ciphertexts = [int(c) for c in key.public.read(payload, lanes.plaintexts(102 * 40), who="x")]
    assert len(set(ciphertexts)) == len(ciphertexts)  # 39 of them hold the same plaintext
    assert all((c - 1) % key.public.n for c in ciphertexts)  # 1 + m n would be read without any key
    low = np.array([c & 0xFF for c in ciphertexts])
    assert len(set(low.tolist())) > 20


def test_a_stream_is_used_up() -> None:
    cipher, stream = PaillierCipher(KEY.public, LANES), rng()
    vector = np.zeros(5, np.int64)
    assert cipher.encrypt(vector, stream) != cipher.encrypt(vector, stream)
    assert cipher.encrypt(vector, rng(1)) == cipher.encrypt(vector, rng(1)) != cipher.encrypt(vector, rng(2))


@pytest.mark.parametrize("number", [0, P, 7 * Q, KEY.public.n, KEY.public.n**2, KEY.public.n**2 + 1])
def test_numbers_that_are_no_ciphertext_are_refused(number: int) -> None:
    cipher = PaillierCipher(KEY.public, LANES)
    good = cipher.encrypt(np.zeros(20, np.int64), rng())
    size = KEY.public.size
    bad = number.to_bytes(size, "big")
    for place in range(0, len(good), size):
        payload = good[:place] + bad + good[place + size :]
        with pytest.raises(ProtocolError, match=r"n\^2|coprime"):
            cipher.add([good, payload], 20)
        with pytest.raises(ProtocolError, match="an encrypted sum"):
            KEY.decrypt(payload, 20, lanes=LANES, added=1)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_noise_from_the_wire_is_refused_or_opens_to_nothing(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        KEY.decrypt(payload, 20, lanes=LANES, added=1)


@pytest.mark.parametrize("added", [0, 1, 3, 4, -1])
def test_a_total_of_another_number_of_vectors_is_refused(added: int) -> None:
    cipher = PaillierCipher(KEY.public, LANES)
    payloads = [cipher.encrypt(np.full(20, 5), rng(i)) for i in range(2)]
    total = cipher.add(payloads, 20)
    assert (KEY.decrypt(total, 20, lanes=LANES, added=2) == 10).all()
    with pytest.raises(ProtocolError, match="a decrypted sum"):
        KEY.decrypt(total, 20, lanes=LANES, added=added)


def test_more_vectors_than_the_lanes_hold_are_refused_when_opened() -> None:
    """Sums of sums can hide their number from `add`; the lane that counts tells."""
    cipher = PaillierCipher(KEY.public, LANES)
    three = cipher.add([cipher.encrypt(np.full(20, 5), rng(i)) for i in range(3)], 20)
    with pytest.raises(ProtocolError, match="a decrypted sum"):
        KEY.decrypt(cipher.add([three, three], 20), 20, lanes=LANES, added=3)


def test_a_total_under_another_key_is_refused() -> None:
    other = PaillierKey(1000003, 1000919)
    payload = PaillierCipher(other.public, Lanes(other.public.bits, 5, 3)).encrypt(np.zeros(20, np.int64), rng())
    with pytest.raises(ProtocolError):
        KEY.decrypt(payload, 20, lanes=LANES, added=1)


def test_lanes_of_another_modulus_are_refused() -> None:
    with pytest.raises(PlanError, match="modulus of 3072 bits; got 2048"):
        PaillierCipher(paillier_key().public, Lanes(3072, 5, 3))


def test_a_public_key_travels_alone() -> None:
    public = paillier_key().public
    assert PaillierPublic.from_bytes(public.to_bytes(), who="a modulus") == public
    assert len(public.to_bytes()) == 256
    even = public.to_bytes()[:-1] + b"\0"
    short = (public.n >> 8).to_bytes(256, "big")
    for bad in (b"", b"\xff" * 255, b"\xff" * 128, b"\xff" * 2048, even, short, public.to_bytes() + b"\1"):
        with pytest.raises(ProtocolError, match="modulus of 2048 to 8192 bits"):
            PaillierPublic.from_bytes(bad, who="a modulus")


def test_packing_and_short_masks_beat_the_textbook_by_far() -> None:
    key, values = paillier_key(), np.arange(306)
    cipher = PaillierCipher(key.public, Lanes(2048, 2**15 - 1, 10))
    cipher.encrypt(values, rng())  # makes the table
    started = time.process_time()
    cipher.encrypt(values, rng())
    packed = (time.process_time() - started) / len(values)
    started = time.process_time()
    for value in (1, 2):
        textbook_encrypt(key.public.n, value, 2**2000 + value)
    assert (time.process_time() - started) / 2 > 300 * packed
