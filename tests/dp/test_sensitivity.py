import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilia.core.errors import PlanError
from consilia.dp.accountant import bound
from consilia.dp.event import Event
from consilia.dp.sensitivity import effective_multiplier, of_weighted_mean

FLOATS = st.one_of(st.floats(-1e12, 1e12), st.sampled_from([0.0, math.nan, math.inf, -math.inf, 1e-300, 1e300]))


def _clip(update: np.ndarray, clip_norm: float) -> np.ndarray:
    # The clipper's contract, written again here: non-finite updates become zero.
    if not np.isfinite(update).all():
        return np.zeros_like(update)
    largest = float(np.abs(update).max(initial=0.0))
    if largest == 0:
        return update
    norm = largest * float(np.linalg.norm(update / largest))  # no overflow at 1e300
    return update if norm <= clip_norm else update / largest * (clip_norm / (norm / largest))


def _mean(
    updates: list[np.ndarray], weights: list[float], present: list[bool], denominator: float, clip: float
) -> np.ndarray:
    total = np.zeros(3)
    for update, weight, here in zip(updates, weights, present, strict=True):
        if here:
            total += weight * _clip(update, clip)
    return total / denominator


@st.composite
def _rounds(draw: st.DrawFn) -> tuple[list[np.ndarray], list[float], list[bool], float, float, int, np.ndarray]:
    sites = draw(st.integers(1, 6))
    vector = st.lists(FLOATS, min_size=3, max_size=3).map(np.array)
    weights = draw(st.lists(st.floats(0, 1e4), min_size=sites, max_size=sites))
    return (
        draw(st.lists(vector, min_size=sites, max_size=sites)),
        weights,
        draw(st.lists(st.booleans(), min_size=sites, max_size=sites)),
        draw(st.floats(1e-2, 1e5)),
        draw(st.floats(1e-3, 1e3)),
        draw(st.integers(0, sites - 1)),
        draw(vector),
    )


@settings(max_examples=300, deadline=None)
@given(_rounds())
def test_one_site_moves_the_mean_by_at_most_the_stated_sensitivity(
    case: tuple[list[np.ndarray], list[float], list[bool], float, float, int, np.ndarray],
) -> None:
    updates, weights, present, denominator, clip, site, other = case
    present[site] = True
    stated = of_weighted_mean(clip, weights, denominator)
    rounding = 1e-9 * clip * (1 + sum(weights)) / denominator
    before = _mean(updates, weights, present, denominator, clip)

    without = [here and index != site for index, here in enumerate(present)]
    removed = float(np.linalg.norm(before - _mean(updates, weights, without, denominator, clip)))
    assert removed <= stated + rounding

    replaced = [other if index == site else update for index, update in enumerate(updates)]
    moved = float(np.linalg.norm(before - _mean(replaced, weights, present, denominator, clip)))
    assert moved <= 2 * stated + rounding


def test_the_bound_is_reached_and_a_missing_clip_breaks_it() -> None:
    weights, denominator, clip = [1.0, 4.0, 2.0], 10.0, 0.5
    stated = of_weighted_mean(clip, weights, denominator)
    assert stated == pytest.approx(0.2)
    updates = [np.zeros(3), np.array([9.0, 0, 0]), np.zeros(3)]
    assert np.linalg.norm(_mean(updates, weights, [True] * 3, denominator, clip)) == pytest.approx(stated)
    unclipped = np.linalg.norm(_mean(updates, weights, [True] * 3, denominator, 1e9))
    assert unclipped > stated
    # Uniform weights assumed where they are not: Flower's and others' mistake, caught by the same numbers.
    assert clip / len(weights) < stated


@pytest.mark.parametrize(
    ("clip", "weights", "denominator"),
    [(0.0, [1.0], 1.0), (math.inf, [1.0], 1.0), (1.0, [], 1.0), (1.0, [-1.0], 1.0), (1.0, [math.nan], 1.0), (1.0, [1.0], 0.0)],
)  # fmt: skip
def test_numbers_without_meaning_are_refused(clip: float, weights: list[float], denominator: float) -> None:
    with pytest.raises(PlanError):
        of_weighted_mean(clip, weights, denominator)


def test_a_smaller_site_enjoys_more_noise() -> None:
    assert effective_multiplier(1.0, own=0.5, largest=2.0) == 4.0
    assert effective_multiplier(1.0, own=2.0, largest=2.0) == 1.0
    assert effective_multiplier(1.0, own=0.0, largest=2.0) == math.inf
    assert bound([(Event(math.inf), 3)], 1e-5).epsilon == 0
    with pytest.raises(PlanError, match="at most 2"):
        effective_multiplier(1.0, own=2.1, largest=2.0)
