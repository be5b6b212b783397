"""Numbers that ride beside an update come out as their exact sum, however small the elements of the sum."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilia.rounds.lanes import (
    Lanes,
    limb_bits,
    read_scores,
    read_update,
    score_numbers,
    update_numbers,
)

numbers = st.integers(0, 2**48 - 1)


@given(st.integers(5, 40), st.lists(st.tuples(numbers, numbers), min_size=1, max_size=100))
def test_the_sum_is_exact_and_every_element_within_its_bound(limb: int, sites: list[tuple[int, int]]) -> None:
    lanes = Lanes(limb, 2)
    each = [lanes.encode(pair) for pair in sites]
    assert all(((one >= 0) & (one < 2**limb)).all() and len(one) == lanes.width for one in each)
    assert lanes.decode(np.sum(each, axis=0)) == [sum(pair[0] for pair in sites), sum(pair[1] for pair in sites)]


@pytest.mark.parametrize(("value", "kept"), [(-5, 0), (2**60, 2**48 - 1)])
def test_what_is_out_of_range_cannot_spill_into_another_lane(value: int, kept: int) -> None:
    lanes = Lanes(9, 2)
    assert lanes.decode(lanes.encode([value, 7])) == [kept, 7]


@given(st.integers(7, 2**40), st.integers(2**15 - 1, 2**62), st.integers(1, 1000))
def test_limbs_fit_one_sites_bound_and_the_sum_of_all(bound: int, largest: int, sites: int) -> None:
    limb = limb_bits(bound, largest, sites)
    assert 2**limb - 1 <= bound
    assert sites * (2**limb - 1) <= largest


def test_what_rides_is_read_back() -> None:
    weight, loss = read_update(
        [a + b for a, b in zip(update_numbers(0.25, 2.0), update_numbers(1.0, 0.5), strict=True)]
    )
    assert weight == pytest.approx(1.25, abs=1e-8)
    assert loss == pytest.approx(1.0, abs=1e-5)
    one = score_numbers({"n": 61, "accuracy": 0.75, "loss": 0.4})
    two = score_numbers({"n": 39, "accuracy": None, "loss": 0.0})
    assert read_scores([a + b for a, b in zip(one, two, strict=True)]) == pytest.approx((100, 45.75, 24.4), abs=1e-3)
    assert update_numbers(1.0, float("inf"))[1] == 0
    assert read_scores(score_numbers({"n": 2, "accuracy": 1.0, "loss": float("nan")})) == (2, 2, 2048)
    assert read_scores(score_numbers({"n": 2, "accuracy": 1.0, "loss": None})[:2]) == (2, 2, None)
