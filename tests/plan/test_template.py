import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from consilia.core.errors import PlanError, Problem
from consilia.plan.faults import sections
from consilia.plan.load import from_text, load
from consilia.plan.rules import broken
from consilia.plan.template import template

PLANS = sorted((Path(__file__).parents[2] / "examples" / "plans").glob("*.toml"))


def test_the_template_loads_checks_and_claims_epsilon_1(checked: Callable[..., object]) -> None:
    plan = from_text(template())
    assert broken(plan) == []
    assert plan.privacy.epsilon == 1
    checked(text=template())


def test_the_template_shows_every_key_once_with_its_meaning() -> None:
    lines = template().splitlines()
    for section, keys in sections().items():
        head = "# [[phases]]" if section == "phases" else f"[{section}]"
        start = next(i for i, line in enumerate(lines) if line.startswith(head))
        for key, meaning in keys.items():
            shown = [line for line in lines[start:] if line.removeprefix("# ").startswith(f"{key} = ")]
            assert shown, key
            assert meaning in shown[0]


def _problems(text: str) -> tuple[Problem, ...]:
    try:
        from_text(text)
    except PlanError as error:
        return error.problems
    return ()


def test_every_line_that_is_commented_out_is_valid_once_uncommented() -> None:
    section = ""
    for line in template().splitlines():
        if line.startswith("["):
            section = line.split("]")[0] + "]"
        if line.startswith("# [["):
            section = "[[phases]]\nrounds = 3"
            continue
        if line.startswith("# ") and " = " in line.split("  # ")[0] and section:
            setting = line.removeprefix("# ")
            key = setting.split(" = ")[0]
            value = tomllib.loads(setting)[key]
            if section.startswith("[[") and key == "rounds":
                continue
            text = f"{section}\n{setting}\n" + ("" if section == "[data]" else '[data]\nsource = "heart"\n')
            named = [problem for problem in _problems(text) if problem.who.endswith(f".{key}")]
            assert named == [], value  # only what the rest of the plan lacks may be missing


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.name)
def test_the_example_plans_break_no_rule(path: Path) -> None:
    assert broken(load(path)) == []


def test_the_example_plans_are_there() -> None:
    assert {"heart.toml", "heart-open.toml", "adult.toml", "adult-open.toml"} <= {path.name for path in PLANS}
