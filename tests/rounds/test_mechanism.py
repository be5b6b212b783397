"""A site whose ledger would book less than what it runs does not start (patterns D and E)."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.rounds.bench import FEDAVG, FEDSGD, RECORD, SITE, heart

from consilia.core.errors import PlanError
from consilia.core.spec import Adjacency, Unit
from consilia.dp.event import DiscreteGaussianEvent, Event
from consilia.federation.one_site import local_work
from consilia.federation.simulation import Prepared, Simulation, prepare
from consilia.learning.work import LocalWork
from consilia.pipeline.chain import Chain
from consilia.rounds.mechanism import event_that_runs, require_covered

POISSON = 'algorithm = "fedavg"\nbatch = "poisson"\nsampling_rate = 0.2\nlocal_steps = 3'
PLANS = {
    "full": heart(),
    "poisson": heart(training=POISSON),
    "fixed epochs": heart(training=FEDAVG),
    "fixed steps": heart(training=FEDAVG.replace("local_epochs = 1", "local_steps = 5")),
    "server": heart(privacy=RECORD.replace('"site"', '"server"'), aggregation='weights = "uniform"'),
    "site unit": heart(training=FEDAVG, privacy=SITE.replace('"server"', '"site"')),
    "site unit, server": heart(training=FEDAVG, privacy=SITE),
    "none": heart(training=FEDSGD, privacy='unit = "none"'),
}


def runs(prepared: Prepared, site: str) -> Event | DiscreteGaussianEvent | None:
    half, (step, *_) = prepared.run_plan.site(site), prepared.pipelines
    own = half.terms.weight * step.protection.site_bound(site)
    work = local_work(half, half.phases[0])
    return event_that_runs(step.protection.unit, work, step.chain, own=own, units=half.terms.count)


@pytest.mark.parametrize("name", PLANS)
def test_what_runs_is_what_is_charged(name: str) -> None:
    prepared = prepare(PLANS[name], Path.cwd())
    for terms in prepared.run_plan.sites:
        charged, found = prepared.run_plan.charges[terms.name].round_events[0], runs(prepared, terms.name)
        if charged is None:
            assert found is None
            continue
        assert isinstance(found, Event)
        assert isinstance(charged, Event)
        assert found.noise_multiplier == pytest.approx(charged.noise_multiplier, rel=1e-9)
        assert replace(found, noise_multiplier=1.0) == replace(charged, noise_multiplier=1.0)


LESS: dict[str, Callable[[Event], Event | None]] = {
    "more noise than drawn": lambda e: replace(e, noise_multiplier=e.noise_multiplier * 1.01),
    "fewer steps": lambda e: replace(e, steps=e.steps - 1),
    "a lower rate": lambda e: replace(e, sampling_rate=e.sampling_rate / 2),
    "another adjacency": lambda e: replace(e, adjacency=Adjacency.REPLACE_ONE),
    "nothing": lambda _: None,
}


@pytest.mark.parametrize("less", LESS)
def test_a_charge_below_what_runs_is_refused_before_anything_starts(less: str, tmp_path: Path) -> None:
    prepared = prepare(PLANS["poisson"], Path.cwd())
    plan = prepared.run_plan
    charge = plan.charges["Hungary"]
    event = charge.round_events[0]
    assert isinstance(event, Event)
    wrong = replace(charge, round_events=(LESS[less](event),))
    changed = replace(prepared, run_plan=replace(plan, charges={**plan.charges, "Hungary": wrong}))
    with pytest.raises(PlanError, match="a charge for what it runs"):
        Simulation(changed, run="r", home=tmp_path)


def test_more_than_what_runs_may_be_charged() -> None:
    prepared = prepare(PLANS["poisson"], Path.cwd())
    half = prepared.run_plan.site("Hungary")
    found = runs(prepared, "Hungary")
    assert found is not None
    require_covered(half, half.phases[0], replace(found, steps=found.steps - 1))
    assert prepared.pipelines[0].protection.unit is Unit.RECORD


def test_a_pass_is_over_the_rows_that_are_there() -> None:
    # Charged: one use a round, for 100 registered rows in 4 batches of 30. Over 90 rows the fourth batch is of a second pass.
    work = LocalWork(batch="fixed", batch_size=30, expected_batch=30.0, steps=4, clip_norm=1.0, noise_multiplier=2.0)
    found = [event_that_runs(Unit.RECORD, work, Chain(), own=1.0, units=rows) for rows in (100, 90)]
    assert [event.steps for event in found if event is not None] == [1, 4]
