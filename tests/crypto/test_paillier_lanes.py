"""Lanes: every value comes back, and no sum that was planned for runs over."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilia.core.errors import PlanError, ProtocolError
from consilia.crypto.paillier_lanes import Lanes


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_sums_come_back(data: st.DataObject) -> None:
    bits, bound = data.draw(st.integers(64, 400)), data.draw(st.integers(1, 2**55))
    count = data.draw(st.integers(1, 60))
    lanes = Lanes(bits, bound, count)
    dim, added = data.draw(st.integers(1, 50)), data.draw(st.integers(1, count))
    entry = st.integers(-bound, bound) | st.sampled_from([-bound, bound])
    vectors = np.array([data.draw(st.lists(entry, min_size=dim, max_size=dim)) for _ in range(added)], np.int64)
    packed = [lanes.pack(vector) for vector in vectors]
    assert all(0 <= plain < 2 ** (bits - 1) and len(row) == lanes.plaintexts(dim) for row in packed for plain in row)
    total = [sum(column) for column in zip(*packed, strict=True)]
    assert lanes.unpack(total, dim, added=added).tolist() == vectors.sum(axis=0).tolist()


@pytest.mark.parametrize(("bits", "per"), [(2048, 102), (3072, 153)])
def test_sixteen_bits_and_ten_sites_take_twenty_bits(bits: int, per: int) -> None:
    lanes = Lanes(bits, 2**15 - 1, 10)
    assert (lanes.width, lanes.per_plaintext) == (20, per)


@given(st.integers(2, 40), st.integers(1, 2**20))
def test_a_lane_is_never_wider_than_value_and_count_ask_for(value_bits: int, count: int) -> None:
    lanes = Lanes(3072, 2 ** (value_bits - 1) - 1, count)
    assert lanes.width <= value_bits + (count - 1).bit_length()
    assert 2 * lanes.bound * count < 2**lanes.width


def test_full_lanes_stay_below_the_least_modulus_of_their_length() -> None:
    lanes = Lanes(64, 3, 42)  # of 8 bits: 8 of them would reach 2^64, 7 stay below 2^63
    assert (lanes.width, lanes.per_plaintext) == (8, 7)
    assert max(42 * plain for plain in lanes.pack(np.full(40, 3))) < 2**63


def test_one_vector_more_would_run_over() -> None:
    """The width is the least: with room for 8 vectors of +-4, which make 64, lanes have 7 bits and not 6."""
    assert Lanes(64, 4, 8).width == 7
    assert Lanes(64, 4, 7).width == 6
    packed = Lanes(64, 4, 7).pack(np.array([4, 0]))
    assert sum(packed * 8) != Lanes(64, 4, 8).pack(np.array([4, 0]))[0] * 8


@pytest.mark.parametrize(("bits", "bound", "count", "words"), [
    (2048, 2**60, 4, "sums that fit 63 bits; got 4 vectors of values up to 1152921504606846976, whose sums take 64 bits"),
    (20, 2**15, 10, "sums that fit 19 bits"), (2048, 0, 1, "at least 1"), (2048, 1, 0, "at least 1"),
    (2048, -5, 3, "bound -5"),
])  # fmt: skip
def test_what_no_lane_holds_is_refused_with_its_numbers(bits: int, bound: int, count: int, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        Lanes(bits, bound, count)


def test_the_largest_sum_there_is_comes_back() -> None:
    lanes = Lanes(2048, 2**61 - 1, 2)
    assert lanes.width == 63
    for value in (-lanes.bound, lanes.bound):
        total = [2 * plain for plain in lanes.pack(np.full(70, value))]
        assert (lanes.unpack(total, 70, added=2) == 2 * value).all()


LANES = Lanes(100, 3, 4)  # 19 lanes of 5 bits


def test_what_is_no_sum_of_so_many_vectors_is_refused() -> None:
    good = LANES.pack(np.array([1, -2, 3]))
    assert LANES.unpack(good, 3, added=1).tolist() == [1, -2, 3]
    for bad, added in (
        (good, 2),  # another number of vectors
        ([good[0] + 1], 1),
        ([good[0] + (4 << 5)], 1),  # 4 + 4 of at most 6
        ([good[0] + (1 << 5 * 4)], 1),  # an unused lane
        ([good[0] + (1 << 5 * 19)], 1),  # beyond all lanes
    ):
        with pytest.raises(ProtocolError, match="a decrypted sum"):
            LANES.unpack(bad, 3, added=added)


def test_a_hundred_thousand_values_take_milliseconds() -> None:
    lanes, values = Lanes(3072, 2**15 - 1, 10), np.arange(100_000) % 65_535 - 32_767
    packed = lanes.pack(values)
    started = time.process_time()
    for _ in range(3):
        lanes.unpack(lanes.pack(values), len(values), added=1)
    assert (time.process_time() - started) / 3 < 0.1
    assert (lanes.unpack(packed, len(values), added=1) == values).all()
