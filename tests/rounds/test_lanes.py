"""Numbers that ride beside an update come out as their exact sum, whatever the ring."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilia.core.ring import BITS, Ring
from consilia.rounds.lanes import Lanes

numbers = st.integers(0, 2**48 - 1)


@given(st.sampled_from(BITS), st.lists(st.tuples(numbers, numbers), min_size=1, max_size=100))
def test_the_sum_is_exact(bits: int, sites: list[tuple[int, int]]) -> None:
    ring = Ring(bits)
    lanes = Lanes(ring, len(sites), 2)
    total = np.zeros(lanes.width, ring.dtype)
    for pair in sites:
        total += ring.lift(lanes.encode(pair))
    assert lanes.decode(ring.center(total)) == [sum(pair[0] for pair in sites), sum(pair[1] for pair in sites)]


@pytest.mark.parametrize(("value", "kept"), [(-5, 0), (2**60, 2**48 - 1)])
def test_what_is_out_of_range_cannot_spill_into_another_lane(value: int, kept: int) -> None:
    lanes = Lanes(Ring(16), 3, 2)
    assert lanes.decode(lanes.encode([value, 7])) == [kept, 7]
