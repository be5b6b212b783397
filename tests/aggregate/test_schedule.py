"""The factor of the learning rate, round by round."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilia.aggregate.schedule import Schedule, rate_factor


def factors(schedule: Schedule, warmup: int, rounds: int) -> list[float]:
    return [rate_factor(schedule, warmup, t, rounds) for t in range(1, rounds + 1)]


def test_constant_without_warmup_changes_nothing() -> None:
    assert factors("constant", 0, 5) == [1] * 5


def test_warmup_rises_in_equal_steps_to_the_full_rate() -> None:
    assert factors("constant", 4, 7) == pytest.approx([0.2, 0.4, 0.6, 0.8, 1, 1, 1])


def test_cosine_by_hand() -> None:
    assert factors("cosine", 0, 4) == pytest.approx([1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5])
    assert factors("cosine", 1, 3) == pytest.approx([0.5, 1, 0.5])


@given(st.sampled_from(["constant", "cosine"]), st.integers(1, 400), st.data())
def test_every_round_moves_the_peak_is_one_and_cosine_only_falls_after_it(
    schedule: Schedule, rounds: int, data: st.DataObject
) -> None:
    warmup = data.draw(st.integers(0, rounds - 1))
    found = factors(schedule, warmup, rounds)
    assert all(0 < factor <= 1 for factor in found)
    assert found[warmup] == max(found) == 1
    assert found[: warmup + 1] == sorted(found[: warmup + 1])
    assert found[warmup:] == sorted(found[warmup:], reverse=True)
