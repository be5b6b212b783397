"""Packed Paillier against the textbook, and what it refuses."""

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crypto.paillier_run import TOY, P, Q, Run, real_key, rng

from consilia.core.errors import PlanError, ProtocolError
from consilia.crypto.paillier import PaillierSums
from consilia.crypto.paillier_base import FixedBase
from consilia.crypto.paillier_key import PaillierKey
from consilia.crypto.paillier_lanes import Lanes
from consilia.crypto.paillier_public import PaillierPublic
from consilia.crypto.paillier_tags import tag

RUN = Run.toy()
N = TOY.public.n
ZEROS = np.zeros(20, np.int64)


def textbook_encrypt(n: int, message: int, r: int) -> int:
    return pow(n + 1, message, n * n) * pow(r, n, n * n) % (n * n)


def textbook_decrypt(p: int, q: int, ciphertext: int) -> int:
    n, order = p * q, math.lcm(p - 1, q - 1)
    logarithm = (pow(ciphertext, order, n * n) - 1) // n
    return logarithm * pow((pow(n + 1, order, n * n) - 1) // n, -1, n) % n


def test_a_small_key_worked_by_hand() -> None:
    """p = 7, q = 11, r = 23: three lanes of two bits hold 1 (the count), 1 + 1 and -1 + 1, which is 1 + 2 x 4 = 9."""
    run = Run(PaillierKey(7, 11), Lanes(7, 1, 1))
    assert run.lanes.pack(np.array([1, -1])) == [9]
    ciphertext = (1 + 9 * 77) * pow(23, 77, 5929) % 5929
    assert ciphertext == 694 * 606 % 5929 == 5534 == textbook_encrypt(77, 9, 23)
    assert textbook_decrypt(7, 11, 5534) == 9
    own = tag(77, run.key.group, b"round 1", [9], [1])
    assert run.open(run.key.public.write([5534], own), run.opening([1], 2)).tolist() == [1, -1]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-5, 5), min_size=1, max_size=40), st.integers(0, 1000))
def test_the_textbook_reads_what_the_cipher_writes(values: list[int], label: int) -> None:
    vector = np.array(values, np.int64)
    payload = RUN.cipher(1).encrypt(vector, rng(label))
    read, _ = TOY.public.read(payload, RUN.lanes.plaintexts(len(values)), who="a payload")
    assert [textbook_decrypt(P, Q, int(c)) for c in read] == RUN.lanes.pack(vector)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(-5, 5), min_size=20, max_size=20), min_size=1, max_size=3), st.integers(2, 10**5))
def test_the_key_reads_what_the_textbook_writes(vectors: list[list[int]], r: int) -> None:
    payloads = []
    for site, vector in enumerate(vectors, 1):
        plaintexts = RUN.lanes.pack(np.array(vector, np.int64))
        ciphertexts = [textbook_encrypt(N, plain, r + site) for plain in plaintexts]
        payloads.append(TOY.public.write(ciphertexts, tag(N, TOY.group, b"round 1", plaintexts, [site])))
    opened = RUN.open(RUN.sums.add(payloads, 20), RUN.opening(range(1, len(vectors) + 1), 20))
    assert opened.tolist() == np.sum(vectors, axis=0).tolist()


def test_a_power_from_the_table_is_a_power() -> None:
    table = FixedBase(12345, 10**9 + 7, 3)
    for exponent in (0, 1, 255, 256, 0xABCDEF, 0xFFFFFF):
        assert table.power(exponent.to_bytes(3, "little")) == pow(12345, exponent, 10**9 + 7)
    with pytest.raises(ValueError, match="shorter"):
        table.power(b"\1\2")


def test_masks_are_nth_residues_of_a_square_class_that_nobody_chose() -> None:
    """h_s = h^n with h = -x^2: a non-residue modulo both primes, so its Jacobi symbol tells nothing."""
    key = real_key()
    mask, p, q, n = int(key.public.masks.power((1).to_bytes(64, "little"))), key.p, key.q, key.public.n
    assert pow(mask, (p - 1) // 2, p) == p - 1
    assert pow(mask, (q - 1) // 2, q) == q - 1
    assert pow(mask, math.lcm(p - 1, q - 1), n * n) == 1  # an n-th residue: it adds nothing to a plaintext


def test_every_ciphertext_has_a_mask_of_its_own() -> None:
    run, dim = Run.real(), 102 * 40
    payload = run.cipher(1).encrypt(np.zeros(dim, np.int64), rng())
    ciphertexts = [int(c) for c in run.key.public.read(payload, run.lanes.plaintexts(dim), who="x")[0]]
    assert len(set(ciphertexts)) == len(ciphertexts) == 41  # 39 of them hold the same plaintext
    assert all((c - 1) % run.key.public.n for c in ciphertexts)  # 1 + m n would be read without any key


def test_a_stream_is_used_up() -> None:
    cipher, stream = RUN.cipher(1), rng()
    assert cipher.encrypt(ZEROS, stream) != cipher.encrypt(ZEROS, stream)
    assert cipher.encrypt(ZEROS, rng(1)) == cipher.encrypt(ZEROS, rng(1)) != cipher.encrypt(ZEROS, rng(2))


@pytest.mark.parametrize("number", [0, P, 7 * Q, N, N**2, N**2 + 1])
def test_numbers_that_are_no_ciphertext_are_refused(number: int) -> None:
    good, size = RUN.cipher(1).encrypt(ZEROS, rng()), TOY.public.size
    for place in range(RUN.lanes.plaintexts(20)):
        payload = good[: place * size] + number.to_bytes(size, "big") + good[(place + 1) * size :]
        with pytest.raises(ProtocolError, match=r"n\^2|coprime"):
            RUN.sums.add([good, payload], 20)
        with pytest.raises(ProtocolError, match="an encrypted sum"):
            RUN.open(payload, RUN.opening([1], 20))


@pytest.mark.parametrize("number", [N, N + 1, 2**40 - 1])
def test_numbers_that_are_no_tag_are_refused(number: int) -> None:
    good = RUN.cipher(1).encrypt(ZEROS, rng())
    with pytest.raises(ProtocolError, match="a tag below n"):
        RUN.sums.add([good[:-5] + number.to_bytes(5, "big")], 20)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_noise_from_the_wire_is_refused(data: st.DataObject) -> None:
    size = data.draw(st.sampled_from([0, 1, RUN.sums.expected_size(20) - 1, RUN.sums.expected_size(20)]))
    payload = data.draw(st.binary(min_size=size, max_size=size))
    with pytest.raises(ProtocolError):
        RUN.open(payload, RUN.opening([1], 20))


def test_more_vectors_than_the_lanes_hold_are_refused_when_opened() -> None:
    """Sums of sums can hide their number from `add`."""
    three = RUN.sums.add(RUN.encrypt([ZEROS + 5] * 3), 20)
    assert (RUN.open(three, RUN.opening([1, 2, 3], 20)) == 15).all()
    with pytest.raises(ProtocolError, match="a sum to open"):
        RUN.open(RUN.sums.add([three, three], 20), RUN.opening([1, 2, 3], 20))


def test_a_total_under_another_key_is_refused() -> None:
    other = Run(PaillierKey(1000003, 1000919), Lanes(40, 5, 3))
    with pytest.raises(ProtocolError):
        RUN.open(other.cipher(1).encrypt(ZEROS, rng()), RUN.opening([1], 20))


def test_lanes_of_another_modulus_are_refused() -> None:
    with pytest.raises(PlanError, match="modulus of 3072 bits; got 2048"):
        PaillierSums(real_key().public, Lanes(3072, 5, 3))


def test_what_prints_shows_no_key() -> None:
    cipher = Run.real().cipher(1)
    assert repr(cipher.group) not in repr(cipher)
    assert cipher.group.hex() not in repr(cipher)


def test_a_public_key_travels_alone() -> None:
    public = real_key().public
    assert PaillierPublic.from_bytes(public.to_bytes(), who="a modulus") == public
    assert len(public.to_bytes()) == 256
    even = public.to_bytes()[:-1] + b"\0"
    short = (public.n >> 8).to_bytes(256, "big")
    for bad in (b"", b"\xff" * 255, b"\xff" * 128, b"\xff" * 2048, even, short, public.to_bytes() + b"\1"):
        with pytest.raises(ProtocolError, match="modulus of 2048 to 8192 bits"):
            PaillierPublic.from_bytes(bad, who="a modulus")


def test_packing_and_short_masks_beat_the_textbook_by_far() -> None:
    run, values = Run.real(), np.arange(306)
    run.cipher(1).encrypt(values, rng())  # makes the table
    started = time.process_time()
    run.cipher(1).encrypt(values, rng())
    packed = (time.process_time() - started) / len(values)
    started = time.process_time()
    for value in (1, 2):
        textbook_encrypt(run.key.public.n, value, 2**2000 + value)
    assert (time.process_time() - started) / 2 > 300 * packed
