from collections.abc import Callable

import pytest

from consilia.core.errors import PlanError
from consilia.core.spec import Segment
from consilia.plan.check import check
from consilia.plan.load import from_text
from consilia.plan.run_plan import RunPlan

PRIVATE = """
[data]
source = "heart"
split = "exact"
[training]
algorithm = "fedsgd"
batch = "full"
rounds = 40
[privacy]
unit = "record"
epsilon = 1.0
delta = 1e-5
clip_norm = 1.0
"""
SITES = {"A": 199, "B": 172, "C": 30, "D": 85}


@pytest.fixture
def private() -> str:
    return PRIVATE


Checked = Callable[..., RunPlan]


@pytest.fixture
def checked() -> Checked:
    """Check the private plan with some keys changed."""

    def run(*overrides: str, text: str = PRIVATE, counts: dict[str, int] | None = None) -> RunPlan:
        plan = from_text(text, overrides)
        segments = (Segment("weight", (2, 13)), Segment("bias", (2,)))
        return check(plan, counts=counts or SITES, input_shape=(13,), classes=2, segments=segments)

    return run


@pytest.fixture
def problems(checked: Checked) -> Callable[..., list[str]]:
    """Return what is wrong with the private plan after some changes, one text a problem."""

    def run(*overrides: str, text: str = PRIVATE, counts: dict[str, int] | None = None) -> list[str]:
        try:
            checked(*overrides, text=text, counts=counts)
        except PlanError as error:
            return [str(problem) for problem in error.problems]
        return []

    return run
