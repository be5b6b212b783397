"""The numbers a card reads are plain, finite and those of the checked plan."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from consilia import api
from consilia.plan.facts import facts
from consilia.plan.forecast import forecast
from consilia.plan.run_plan import ADVERSARIES, RunPlan
from consilia.report.card import build

PLANS = Path(__file__).resolve().parents[2] / "examples" / "plans"


@pytest.mark.parametrize("name", ["heart.toml", "heart-open.toml"])
def test_facts_are_plain_and_agree_with_the_plan(name: str) -> None:
    checked = api.check(api.load(PLANS / name))
    found = facts(checked)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["epsilon"] == checked.epsilon
    assert [site["name"] for site in found["sites"]] == [terms.name for terms in checked.sites]
    assert all(tuple(site["epsilon"]) == ADVERSARIES for site in found["sites"])
    assert found["cohort"] == 4
    assert sum(site["participations"] for site in found["sites"]) == sum(map(len, checked.schedule))


def test_a_run_without_a_claim_has_no_bounds() -> None:
    checked = api.check(api.load(PLANS / "heart.toml", set=["run.reproducible=true"]))
    found = facts(checked)
    assert found["epsilon"] is None
    assert found["sites"][0]["epsilon"]["server"] is None


def test_forecast_grows_with_rounds_and_without_metrics_shrinks() -> None:
    def total(*changes: str) -> int:
        ahead = forecast(api.check(api.load(PLANS / "heart.toml", set=changes)))
        return ahead["up"] + ahead["down"]

    assert total("training.rounds=40") == pytest.approx(2 * total("training.rounds=20"), rel=0.05)
    assert total("training.rounds=20", "evaluation.metrics=hidden") < 0.7 * total("training.rounds=20")


@pytest.mark.parametrize("source", [None, "  ", "MNIST"])
def test_weights_to_start_from_stand_on_the_card_whether_or_not_the_plan_names_their_data(
    checked: Callable[..., RunPlan], source: str | None
) -> None:
    named = "data that the plan does not name" if source != "MNIST" else "MNIST"
    keys = ["model.initial=w.safetensors", *([] if source is None else [f'model.initial_source="{source}"'])]
    card = build(facts(checked(*keys)), {})
    assert any(named in point for point in card.not_covered)
    assert any(row.label == "Starts from" and row.value == named for group in card.groups for row in group.rows)
    assert any(named in warning for warning in card.warnings)
    assert not any("first weights" in point for point in build(facts(checked()), {}).not_covered)
