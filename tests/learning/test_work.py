import pytest

from consilia.core.errors import PlanError
from consilia.learning.work import LocalWork


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(PlanError) as error:
        LocalWork(algorithm="fedsgd", steps=2, clip_norm=-1.0, noise_multiplier=float("nan"))
    assert len(error.value.problems) == 4
    assert all(problem.hint for problem in error.value.problems)


def test_noise_needs_a_clip_norm() -> None:
    with pytest.raises(PlanError, match="needs a clip norm"):
        LocalWork(noise_multiplier=1.0)
    with pytest.raises(PlanError, match="at least one step"):
        LocalWork(steps=0)
