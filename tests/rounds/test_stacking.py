"""Sites that answer once, through the whole pipeline: booked before it is sent, averaged or handed on."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import consilia
from consilia.core.errors import BudgetExceeded, PlanError
from consilia.dp.event import EpsilonDeltaEvent
from consilia.federation.simulation import Simulation, prepare
from consilia.learning.stacking.shape import one_model
from consilia.plan.load import from_text
from consilia.store.ledger_store import SiteStore

SITES = ("Cleveland", "Hungary", "Switzerland", "VA Long Beach")
PLAN = """
[data]
source = "heart"
split = "exact"
[sites]
counts = "public"
[training]
algorithm = "stacking"
rounds = 1
batch = "full"
[stack]
row_bound = 2.0
[privacy]
unit = "record"
epsilon = 8.0
[evaluation]
metrics = "public"
"""
CHAIN = ("training.rounds=4", 'aggregation.selection="count"', "aggregation.count=1", "stack.pull=5")


def run(tmp_path: Path, *changes: str, name: str = "run") -> consilia.RunResult:
    return consilia.run(from_text(PLAN, changes), out=tmp_path / name)


@pytest.mark.parametrize(
    "changes",
    [(), ('stack.parts="samples"', "stack.count=2"), ('stack.parts="features"', "stack.count=3"), CHAIN],
    ids=["one", "samples", "features", "chain"],
)
def test_one_answer_a_site_is_booked_and_sent(changes: tuple[str, ...], tmp_path: Path) -> None:
    found = run(tmp_path, *changes, "privacy.delta=1e-5")
    assert found.summary["status"] == "done"
    assert (found.summary["epsilon"], found.summary["delta"]) == (8.0, 1e-5)
    assert np.isfinite(found.model).all()
    assert found.model.any()
    for site in SITES:
        with SiteStore.open(tmp_path / "home" / "sites" / f"{site}.sqlite", site) as store:
            assert store.charged(found.summary["run"]) == [(EpsilonDeltaEvent(8.0, 1e-5), 1)]
            assert list(store.spent("heart").values()) == [(8.0, 1e-5)]


def test_it_learns(tmp_path: Path) -> None:
    assert run(tmp_path, "privacy.epsilon=1000").summary["accuracy"] > 0.7


def test_the_model_is_the_weighted_mean_of_the_sites(tmp_path: Path) -> None:
    prepared = prepare(from_text(PLAN, ("run.reproducible=true",)), tmp_path)
    found = run(tmp_path, "run.reproducible=true")
    with Simulation(prepared, run="other", home=tmp_path / "other") as simulation:
        answers = [
            site._learner.train(prepared.initial, None, 1, site._entropy.stream("train", name, 1)).vector
            for name, site in simulation.sites.items()
        ]
    weights = [terms.weight for terms in prepared.run_plan.sites]
    np.testing.assert_allclose(found.model, np.average(answers, axis=0, weights=weights), rtol=1e-4, atol=1e-5)


def test_a_second_run_needs_its_own_budget(tmp_path: Path) -> None:
    run(tmp_path, "ledger.max_epsilon=10")
    with pytest.raises(BudgetExceeded, match="8 already allotted and 8 asked for"):
        run(tmp_path, "ledger.max_epsilon=10", name="again")


@pytest.mark.parametrize("charged", [EpsilonDeltaEvent(7.9), EpsilonDeltaEvent(8.0, 1e-9)])
def test_a_site_that_would_run_more_than_it_books_does_not_start(charged: EpsilonDeltaEvent, tmp_path: Path) -> None:
    prepared = prepare(from_text(PLAN, ("privacy.delta=1e-5",)), tmp_path)
    plan = prepared.run_plan
    less = replace(plan.charges["Hungary"], round_events=(charged,))
    changed = replace(prepared, run_plan=replace(plan, charges={**plan.charges, "Hungary": less}))
    with pytest.raises(PlanError, match="a charge for what it runs"):
        Simulation(changed, run="less", home=tmp_path / "less")


def test_a_chain_carries_what_earlier_sites_knew(tmp_path: Path) -> None:
    # With a pull beyond measure nobody moves away from the first site's answer.
    held = run(tmp_path, *CHAIN[:3], "stack.pull=1e6", "run.reproducible=true")
    first = run(tmp_path, *CHAIN[1:3], "run.reproducible=true", name="first")
    assert held.model.size == one_model(held.model.size - 1).size
    np.testing.assert_allclose(held.model, first.model, atol=0.05 * np.abs(first.model).max())
