"""What every `SumCipher` owes its callers."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.contracts.schemes import SCHEMES, Scheme

from consilia.core.errors import PlanError, ProtocolError
from consilia.core.randomness import SecretRng

BOUND, COUNT = 2**15 - 1, 10
every_scheme = pytest.mark.parametrize("make", SCHEMES.values(), ids=SCHEMES)
Make = Callable[[int, int], Scheme]


def rng(label: int = 0) -> SecretRng:
    return SecretRng(bytes(32)).derive(label)


def encrypted(scheme: Scheme, vectors: NDArray[np.int64]) -> list[bytes]:
    return [scheme.at(site).encrypt(vector, rng(site)) for site, vector in enumerate(vectors, 1)]


@every_scheme
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_sum_is_exact(make: Make, data: st.DataObject) -> None:
    scheme = make(BOUND, COUNT)
    dim = data.draw(st.sampled_from([1, 2, 101, 102, 250]))
    row = st.lists(st.integers(-BOUND, BOUND), min_size=dim, max_size=dim)
    vectors = np.array(data.draw(st.lists(row, min_size=1, max_size=COUNT)), np.int64)
    payloads = encrypted(scheme, vectors)
    total = scheme.open(scheme.at(1).add(payloads, dim), range(1, len(vectors) + 1), dim)
    assert total.dtype == np.int64
    assert total.tolist() == vectors.sum(axis=0).tolist()


@every_scheme
@pytest.mark.parametrize("value", [-BOUND, BOUND, 0])
def test_a_full_house_of_extremes_does_not_run_over(make: Make, value: int) -> None:
    scheme = make(BOUND, COUNT)
    vectors = np.full((COUNT, 300), value)
    vectors[:, 1::2] *= -1  # neighbours of the other sign: what a carry between them would spoil
    total = scheme.at(1).add(encrypted(scheme, vectors), 300)
    assert (scheme.open(total, range(1, COUNT + 1), 300) == vectors.sum(axis=0)).all()


@every_scheme
def test_a_total_grows_one_by_one_in_any_order(make: Make) -> None:
    scheme = make(BOUND, COUNT)
    vectors = np.arange(-60, 60).reshape(4, 30)
    payloads = encrypted(scheme, vectors)
    total = payloads[2]
    for place in (0, 3, 1):
        total = scheme.at(1).add([total, memoryview(payloads[place])], 30)
    assert total == scheme.at(1).add(iter(payloads), 30)
    assert (scheme.open(total, (1, 2, 3, 4), 30) == vectors.sum(axis=0)).all()


@every_scheme
@pytest.mark.parametrize("dim", [1, 100, 101, 102, 5000])
def test_the_size_is_known_beforehand(make: Make, dim: int) -> None:
    cipher = make(BOUND, COUNT).at(1)
    payload = cipher.encrypt(np.zeros(dim, np.int64), rng())
    assert len(payload) == cipher.expected_size(dim) == len(cipher.add([payload, payload], dim))


@every_scheme
def test_a_sum_opens_as_that_of_its_own_sites_only(make: Make) -> None:
    scheme = make(BOUND, COUNT)
    payloads = encrypted(scheme, np.arange(80).reshape(4, 20))
    total = scheme.at(1).add(payloads[:3], 20)
    assert (scheme.open(total, (3, 2, 1), 20) == np.arange(80).reshape(4, 20)[:3].sum(axis=0)).all()
    for sites in ((1, 2, 4), (1, 2, 3, 4), (1, 2)):
        with pytest.raises(ProtocolError):
            scheme.open(total, sites, 20)


@every_scheme
def test_it_says_what_it_is_for(make: Make) -> None:
    cipher = make(BOUND, COUNT).at(1)
    assert (cipher.bound, cipher.count) == (BOUND, COUNT)


@every_scheme
@pytest.mark.parametrize("vector", [
    np.array([0, BOUND + 1]), np.array([-BOUND - 1]), np.array([np.iinfo(np.int64).min]), np.array([], np.int64),
    np.zeros((2, 2), np.int64), np.zeros(3), np.zeros(3, np.int32),
], ids=str)  # fmt: skip
def test_what_does_not_fit_is_refused_before_it_is_sent(make: Make, vector: NDArray[np.int64]) -> None:
    with pytest.raises(PlanError):
        make(BOUND, COUNT).at(1).encrypt(vector, rng())


@every_scheme
def test_a_vector_is_encrypted_afresh_each_time(make: Make) -> None:
    cipher, stream = make(BOUND, COUNT).at(1), rng()
    vector = np.zeros(8000, np.int64)
    one, two = cipher.encrypt(vector, stream), cipher.encrypt(vector, stream)
    same = np.frombuffer(one, np.uint8) == np.frombuffer(two, np.uint8)
    assert same.mean() < 0.02  # two independent bytes agree once in 256; a tag at the end stays the same
    assert cipher.encrypt(vector, rng()) == one  # and a stream gives the same bytes again


@every_scheme
def test_malformed_payloads_are_refused(make: Make) -> None:
    cipher = make(BOUND, COUNT).at(1)
    good = cipher.encrypt(np.zeros(200, np.int64), rng())
    for bad in (b"", good[:-1], good + b"\0", good + good, b"\xff" * len(good)):
        with pytest.raises(ProtocolError):
            cipher.add([good, bad], 200)
        with pytest.raises(ProtocolError):
            cipher.add([bad], 200)


@every_scheme
def test_none_and_too_many_are_refused(make: Make) -> None:
    cipher = make(BOUND, 3).at(1)
    good = cipher.encrypt(np.zeros(2, np.int64), rng())
    with pytest.raises(ProtocolError, match="at least one"):
        cipher.add([], 2)
    with pytest.raises(ProtocolError, match="at most 3"):
        cipher.add([good] * 4, 2)


@every_scheme
@pytest.mark.parametrize(("bound", "count"), [(2**62, 10), (0, 10), (100, 0)])
def test_what_no_sum_could_hold_is_refused_when_it_is_made(make: Make, bound: int, count: int) -> None:
    with pytest.raises(PlanError):
        make(bound, count)
