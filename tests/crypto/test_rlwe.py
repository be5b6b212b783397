"""Sums under threshold RLWE: exact, small, and opened by any t sites."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crypto.rlwe_run import Run, rng

from consilia.core.errors import ProtocolError
from consilia.crypto import rlwe
from consilia.crypto.rlwe_field import Polynomials
from consilia.crypto.rlwe_ntt import transform
from consilia.crypto.rlwe_parameters import ETA, PRIMES, RlweParameters
from consilia.crypto.rlwe_residues import quotient
from consilia.crypto.rlwe_sampling import ternary
from consilia.crypto.rlwe_wire import POLYNOMIAL, pack, unpack


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_t_sites_open_the_exact_sum(data: st.DataObject) -> None:
    sites = data.draw(st.integers(2, 6))
    threshold = data.draw(st.integers(max(sites // 2 + 1, 2), sites))
    bound = data.draw(st.sampled_from([1, 127, 2**15 - 1, 2**20, 2**28]))
    run = Run(RlweParameters(sites, threshold, sites, bound, 1))
    dim = data.draw(st.sampled_from([1, 5, 4095, 4096]))
    contributors = data.draw(st.integers(1, sites))
    decrypters = data.draw(st.permutations(range(1, sites + 1)))[:threshold]
    few = data.draw(st.lists(st.lists(st.integers(-bound, bound), min_size=5, max_size=5), min_size=6, max_size=6))
    vectors = [np.resize(np.array(few[i]), dim) for i in range(contributors)]
    total = run.sums.add(run.encrypt(vectors), dim)
    assert (run.open(total, run.opening(range(1, contributors + 1), dim, decrypters)) == np.sum(vectors, axis=0)).all()


def test_every_set_of_t_sites_opens_the_same_sum() -> None:
    run = Run(RlweParameters(5, 3, 5, 1000, 3))
    vectors = [np.arange(-50, 50) * (i + 1) for i in range(5)]
    total = run.sums.add(run.encrypt(vectors), 100)
    for decrypters in combinations(range(1, 6), 3):
        assert (run.open(total, run.opening(range(1, 6), 100, decrypters)) == np.sum(vectors, axis=0)).all()


def test_a_vector_of_many_groups_of_polynomials() -> None:
    run = Run(RlweParameters(3, 2, 3, 2**15 - 1, 3))
    draw = np.random.default_rng(0)
    vectors = [draw.integers(-(2**15) + 1, 2**15, 70_000) for _ in range(3)]
    total = run.sums.add(run.encrypt(vectors), 70_000)
    assert (run.open(total, run.opening((1, 2, 3), 70_000)) == np.sum(vectors, axis=0)).all()


@pytest.mark.parametrize(("bits", "times", "answer"), [(16, 4, 1), (20, 4, 1), (27, 5, 2)])
def test_messages_are_small(bits: int, times: int, answer: int) -> None:
    """Ten sites and 1e5 values: at most six times float32 was asked for, whatever the values' bits."""
    parameters, dim = RlweParameters(10, 7, 10, 2 ** (bits - 1) - 1, 3), 100_000
    size = Run(parameters).sums.expected_size(dim)
    assert size <= times * 4 * dim <= 6 * 4 * dim
    assert parameters.blocks(dim) * POLYNOMIAL * len(parameters.kept) <= answer * 4 * dim


def test_ciphertexts_of_different_vectors_look_alike() -> None:
    """Residues modulo the last prime, of zeros and of extremes, are uniform: chi-square over 64 cells."""
    run = Run(RlweParameters(10, 7, 10, 2**15 - 1, 3))
    moduli, blocks = (*run.parameters.kept, *PRIMES), run.parameters.blocks(40_000)
    for values in (np.zeros(40_000, np.int64), np.full(40_000, 2**15 - 1)):
        payload = run.cipher(1).encrypt(values, rng("look"))
        for p, polynomials in zip(moduli, unpack(payload[:-48], moduli, blocks, who="a test"), strict=True):
            cells = np.bincount(polynomials.ravel().astype(np.int64) * 64 // p, minlength=64)
            expected = polynomials.size / 64
            assert ((cells - expected) ** 2 / expected).sum() < 121  # 63 degrees, 1e-5


def test_packing_is_30_bits_and_strict() -> None:
    draw = np.random.default_rng(3).integers(0, PRIMES[0], (1, 2, 64, 64)).astype(np.uint32)
    payload = pack(draw)
    assert len(payload) == 2 * 4096 * 30 // 8
    assert int.from_bytes(payload[:15], "little") == sum(int(r) << 30 * k for k, r in enumerate(draw.ravel()[:4]))
    assert (unpack(payload, PRIMES[:1], 2, who="a test") == draw).all()
    for bad in (payload[:-1], payload + b"\0", b""):
        with pytest.raises(ProtocolError, match="polynomials"):
            unpack(bad, PRIMES[:1], 2, who="a test")
    for place in (0, 1, 2, 3, 8191):
        spoilt = draw.copy()
        spoilt.ravel()[place] = PRIMES[0]
        with pytest.raises(ProtocolError, match="residues"):
            unpack(pack(spoilt), PRIMES[:1], 2, who="a test")


def test_a_ciphertext_has_both_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them the sums are right as well, and nothing is hidden: they are taken out of a ciphertext of zeros here."""
    run, p = Run(RlweParameters(3, 2, 3, 1000, 3)), PRIMES[0]
    ntt, prime = transform(p), transform(p).prime
    seen: list[list[Polynomials]] = []

    def whole(polynomials: list[Polynomials], kept: int) -> list[Polynomials]:
        seen.append([polynomial.copy() for polynomial in polynomials])
        return quotient(polynomials, kept)

    monkeypatch.setattr(rlwe, "quotient", whole)
    payload = run.cipher(1).encrypt(np.zeros(4000, np.int64), rng("errors"))
    u = ntt.forward_small(ternary(1, rng("errors")))
    c1 = unpack(payload[:-48], (*run.parameters.kept, *PRIMES), 1, who="a test")[len(run.parameters.kept)]
    (b, a), *_ = run.cipher(1).key.factors
    first = prime.reduce(seen[0][0] - ntt.inverse(prime.times(u, b)))
    second = ntt.inverse(prime.reduce(prime.centred(c1) - prime.times(u, a)))
    for error in (first, second):
        assert np.abs(error).max() <= ETA
        assert abs(error.std() - (ETA / 2) ** 0.5) < 0.2  # of 4096: five standard deviations of the estimate
    assert abs(np.mean(first * second)) < 1  # and they are two
