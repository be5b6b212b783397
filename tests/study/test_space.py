"""Candidates: drawn from all of the space, within it, and each a valid plan."""

import numpy as np
import pytest
from scipy import stats
from tests.study.conftest import plan

from consilia.core.errors import PlanError
from consilia.core.randomness import SecretRng
from consilia.study.space import Axis, axes, combinations, counted_part, draw, with_values

SPACE = axes({
    "training.server_learning_rate": {"low": 0.01, "high": 1.0, "log": True}, "training.rounds": [2, 4],
    "privacy.clip_norm": {"low": 1, "high": 3}, "model.hidden": [[8], [16, 16]], "training.batch_size": [10, 20, 30],
})  # fmt: skip


def test_every_part_of_the_space_is_drawn_alike() -> None:
    rng = SecretRng(bytes(32))
    drawn = [draw(SPACE, rng) for _ in range(2000)]
    rates = np.log([float(str(values["training.server_learning_rate"])) for values in drawn])
    assert stats.kstest(rates, stats.uniform(np.log(0.01), -np.log(0.01)).cdf).pvalue > 1e-4
    assert (
        stats.kstest(rates, stats.uniform(np.log(0.01), -np.log(0.012)).cdf).pvalue < 1e-2
    )  # another range is told apart
    norms = np.array([float(str(values["privacy.clip_norm"])) for values in drawn])
    assert stats.kstest(norms, stats.uniform(1, 2).cdf).pvalue > 1e-4
    for key, options in (("training.rounds", [2, 4]), ("model.hidden", [[8], [16, 16]])):
        counts = [sum(values[key] == option for values in drawn) for option in options]
        assert sum(counts) == 2000
        assert stats.chisquare(counts).pvalue > 1e-4


def test_ends_of_a_range_are_not_passed_by_rounding() -> None:
    axis = Axis("training.learning_rate", (), 0.1234564, 0.7654321)
    assert axis.between(0.0) == 0.1234564  # 0.123456 lies below it
    assert axis.between(1.0 - 2**-53) <= 0.7654321


def test_what_a_charge_follows_from_is_combined() -> None:
    found = list(combinations(SPACE))
    assert len(found) == 6
    assert {"training.rounds": 4, "training.batch_size": 30} in found
    assert counted_part({"training.rounds": 4, "privacy.clip_norm": 1.0}) == {"training.rounds": 4}
    assert list(combinations([axis for axis in SPACE if axis.key == "privacy.clip_norm"])) == [{}]


def test_values_reach_the_plan_and_are_checked() -> None:
    changed = with_values(plan(), {"training.rounds": 7, "model.hidden": [3]})
    assert (changed.training.rounds, changed.model.hidden) == (7, [3])
    assert plan().training.rounds == 2
    with pytest.raises(PlanError, match=r"training\.rounds"):
        with_values(plan(), {"training.rounds": 0.5})


def test_a_whole_number_beyond_every_float_is_no_end_of_a_range() -> None:
    for low, high in ((1, 10**400), (-(10**400), 1)):
        with pytest.raises(PlanError, match="numbers low < high"):
            axes({"training.server_learning_rate": {"low": low, "high": high}})


def test_a_range_wider_than_the_largest_float_is_still_drawn_alike() -> None:
    axis = Axis("training.server_learning_rate", (), 1e-308, 1e6, log=True)
    assert axis.between(0.5) == pytest.approx(1e-151, rel=1e-4)
    assert axis.between(0.0) == 1e-308
    assert axis.between(1.0) == pytest.approx(1e6)


def test_a_value_that_stands_twice_is_refused() -> None:
    from consilia.study.space import _malformed

    assert _malformed("training.rounds", [3, 4]) is None
    assert "each value once" in str(_malformed("training.rounds", [3, 3]))
