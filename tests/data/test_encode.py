"""Scaling by a public range."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from consilia.data.encode import fill_one_hot, scale_to_range

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(
    ends=st.tuples(FINITE, FINITE).filter(lambda pair: pair[1] / 2 - pair[0] / 2 > 1e-300),
    values=st.lists(st.floats(), max_size=20),
)
def test_scaled_values_are_bounded_and_finite(ends: tuple[float, float], values: list[float]) -> None:
    scaled = scale_to_range(np.array(values, dtype=np.float64), *ends)
    assert np.isfinite(scaled).all()
    assert (np.abs(scaled) <= 1 + 1e-9).all()


def test_the_ends_and_the_middle() -> None:
    scaled = scale_to_range(np.array([20.0, 50.0, 80.0, 0.0, 200.0, np.nan]), 20, 80)
    assert scaled.tolist() == [-1, 0, 1, -1, 1, 0]


def test_one_hot_leaves_missing_at_zero() -> None:
    target = np.zeros((3, 2), dtype=np.float32)
    fill_one_hot(target, np.array([1, -1, 0]))
    assert target.tolist() == [[0, 1], [0, 0], [1, 0]]
