import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilia.core.errors import PlanError
from consilia.dp.truncation import default_batch_cap, truncation_delta


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 5000), q=st.floats(0.001, 1), steps=st.integers(1, 5000), exponent=st.floats(2, 9))
def test_the_default_cap_is_the_smallest_that_costs_next_to_nothing(
    n: int, q: float, steps: int, exponent: float
) -> None:
    delta = 10**-exponent
    cap = default_batch_cap(n, q, steps, delta)
    assert 1 <= cap <= n
    assert truncation_delta(n, q, cap, steps, 20.0) <= 1e-3 * delta
    if cap > 1:
        assert truncation_delta(n, q, cap - 1, steps, 20.0) > 1e-3 * delta


def _exact(n: int, q: float, cap: int, steps: int, epsilon: float) -> float:
    tail = sum(math.comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(cap + 1, n + 1))
    return (1 + math.exp(epsilon)) * steps * tail


def test_against_the_binomial_sum() -> None:
    assert truncation_delta(30, 0.2, 15, 100, 2.0) == pytest.approx(_exact(30, 0.2, 15, 100, 2.0), rel=1e-9)
    assert truncation_delta(30, 0.2, 20, 1, 0.0) == pytest.approx(_exact(30, 0.2, 20, 1, 0.0), rel=1e-9)


def test_the_tail_is_what_a_sampler_shows() -> None:
    sizes = np.random.default_rng(3).binomial(50, 0.1, size=200_000)
    stated = truncation_delta(50, 0.1, 9, 1, 0.0) / 2
    assert (sizes > 9).mean() == pytest.approx(stated, rel=0.05)
    assert (sizes > 8).mean() > 1.5 * stated  # an off-by-one cap would show


def test_limits() -> None:
    assert truncation_delta(10, 0.5, 10, 1000, 5.0) == 0
    assert truncation_delta(10, 0.5, 3, 0, 5.0) == 0
    assert truncation_delta(10, 0.5, 1, 1000, 5.0) == 1.0
    assert truncation_delta(1000, 0.5, 1, 1, 1e6) == 1.0
    assert default_batch_cap(0, 0.5, 10, 1e-5) == 1
    # A data set smaller than the registered bound never costs more.
    assert truncation_delta(40, 0.2, 15, 10, 1.0) < truncation_delta(50, 0.2, 15, 10, 1.0)


def test_numbers_without_meaning_are_refused_at_once() -> None:
    with pytest.raises(PlanError) as caught:
        truncation_delta(-1, 1.5, 0, -2, 1.0)
    assert len(caught.value.problems) == 4
    assert all(problem.hint for problem in caught.value.problems)
