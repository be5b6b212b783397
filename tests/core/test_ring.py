"""Elements survive packing and sums come out exact, in every ring."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilia.core.errors import PlanError, ProtocolError
from consilia.core.ring import BITS, Ring, smallest


@given(st.sampled_from(BITS), st.lists(st.lists(st.integers(-(2**40), 2**40), min_size=3, max_size=3), min_size=1))
def test_a_sum_is_exact_modulo_the_ring_whatever_is_packed_in_between(bits: int, rows: list[list[int]]) -> None:
    ring = Ring(bits)
    total = np.zeros(3, ring.dtype)
    for row in rows:
        total += ring.unpack(ring.pack(ring.lift(np.array(row))), 3, who="test")
    half = 1 << (bits - 1)
    expected = [(sum(column) + half) % (2 * half) - half for column in zip(*rows, strict=True)]
    assert ring.center(total).tolist() == expected


@pytest.mark.parametrize("bits", BITS)
def test_an_element_takes_its_width_on_the_wire(bits: int) -> None:
    ring = Ring(bits)
    assert len(ring.pack(ring.lift(np.arange(-5, 5)))) == 10 * bits // 8
    assert ring.center(ring.lift(np.array([ring.largest, -ring.largest]))).tolist() == [ring.largest, -ring.largest]


def test_the_smallest_ring_that_holds_a_sum() -> None:
    assert [smallest(n).bits for n in (1, 2**15 - 1, 2**15, 2**23, 2**31)] == [16, 16, 24, 32, 64]  # type: ignore[union-attr]
    assert smallest(2**63) is None


def test_what_is_no_ring_and_what_is_no_vector() -> None:
    with pytest.raises(PlanError, match="16, 24, 32, 64 bits; got 20"):
        Ring(20)
    with pytest.raises(ProtocolError, match="3 elements"):
        Ring(24).unpack(b"12345678", 3, who="test")
