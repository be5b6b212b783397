"""Rounds that wait for no one: what is refused, with what to do, and that what is charged bounds what can happen."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.plan.conftest import Checked

from consilia.core.errors import PlanError
from consilia.dp.accountant import bound
from consilia.dp.event import DiscreteGaussianEvent, Event
from consilia.federation.simulation import prepare
from consilia.plan.facts import facts
from consilia.plan.forecast import forecast
from consilia.plan.load import from_text
from consilia.plan.rules import broken

TWO, BUFFERED = "aggregation.mode=two-phase", "aggregation.mode=buffered"
MASKS, SHARED = ("secure_sum.mode=masks",), ("secure_sum.mode=masks", "privacy.noise=distributed")
FEDAVG = ("training.algorithm=fedavg", "training.local_epochs=1")
SITE = ("privacy.unit=site", *FEDAVG)
SIX = {name: 50 + 20 * place for place, name in enumerate("ABCDEF")}


@pytest.mark.parametrize(
    ("changes", "who", "words"),
    [
        ([TWO, "aggregation.selection=count", "aggregation.count=3"], "aggregation.mode", "aggregation.ready says how many"),
        ([TWO, "aggregation.selection=poisson", "aggregation.fraction=0.5"], "aggregation.mode", 'selection = "all"'),
        ([TWO, *SITE, "training.scaffold=true", "privacy.control_clip_norm=1"], "aggregation.mode", "one model for all"),
        ([TWO, "secure_sum.mode=rlwe", "privacy.noise=distributed"], "aggregation.mode", "use masks"),
        ([TWO, "secure_sum.mode=paillier", "privacy.noise=distributed"], "aggregation.mode", "use masks"),
        ([TWO, "secure_sum.mode=attested", "secure_sum.policy=p.toml"], "aggregation.mode", "use masks"),
        ([BUFFERED, *MASKS], "aggregation.mode", 'use "two-phase"'),
        ([BUFFERED, "privacy.noise=server"], "aggregation.mode", 'noise = "site"'),
        ([TWO, *SITE, "training.server_optimizer=dp-adam"], "training.server_optimizer", "counts for less"),
        ([TWO, "training.keep=best", "evaluation.metrics=public"], "training.keep", "scored by other sites"),
        ([TWO, "training.patience=3", "evaluation.metrics=public"], "training.patience", "scored by other sites"),
        (["aggregation.ready=3"], "aggregation.ready", "no effect"),
        (["aggregation.max_staleness=1"], "aggregation.max_staleness", "no effect"),
        (["aggregation.max_participations=9"], "aggregation.max_participations", "no effect"),
    ],
)  # fmt: skip
def test_what_cannot_be_bounded_or_makes_no_sense(changes: list[str], who: str, words: str, private: str) -> None:
    found = broken(from_text(private, changes))
    assert any(f"{who}" in problem.who and words in str(problem) for problem in found), [str(one) for one in found]
    assert all(problem.hint for problem in found)


def test_a_bound_on_participations_says_nothing_without_a_claim() -> None:
    plan = from_text('[data]\nsource = "heart"\n[aggregation]\nmode = "two-phase"\nmax_participations = 3\n')
    assert any("privacy.unit" in problem.needs for problem in broken(plan))


def test_phases_and_stacks_wait_for_all(private: str) -> None:
    mode = '[aggregation]\nmode = "two-phase"\n'
    phased = private.replace("rounds = 40\n", "") + mode + "[[phases]]\nrounds = 3\n[[phases]]\nrounds = 4\n"
    assert any("a plan without phases" in problem.needs for problem in broken(from_text(phased)))
    stack = '[training]\nalgorithm = "stacking"\nrounds = 1\n[privacy]\nunit = "record"\nepsilon = 1\n'
    found = broken(from_text('[data]\nsource = "heart"\n' + stack + mode))
    assert any("fedsgd" in problem.needs and "mode" in problem.who for problem in found)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([TWO, "aggregation.ready=5"], "at most the 4 sites"),
        ([TWO, "aggregation.ready=3", "aggregation.max_participations=29"], "at least 30: 40 rounds of 3 updates come from 4"),
        ([TWO, *SHARED], "at least 3 answers"),  # half of four
        ([TWO, *SHARED, "aggregation.ready=4", "secure_sum.dropouts=2"], "at least 3 answers"),
        ([TWO, "aggregation.quorum=3"], "at most the 2 sites"),
    ],
)  # fmt: skip
def test_numbers_that_the_sites_do_not_have(changes: list[str], words: str, checked: Checked) -> None:
    with pytest.raises(PlanError, match=words):
        checked(*changes)


def test_half_of_the_sites_rounded_up_is_what_a_round_adds(checked: Checked) -> None:
    for sites, half in ((4, 2), (5, 3), (6, 3)):
        plan = checked(TWO, counts=dict(list(SIX.items())[:sites]))
        assert facts(plan)["cohort"] == half
        assert facts(plan)["asynchronous"] == {"mode": "two-phase", "max_staleness": 3}
    assert facts(checked())["asynchronous"] is None


@pytest.mark.parametrize("most", [None, 36])
@pytest.mark.parametrize(("dropouts", "colluders"), [(0, 0), (1, 1)])
def test_a_site_is_charged_for_all_it_may_begin_with_the_fewest_shares_a_sum_may_have(
    most: int | None, dropouts: int, colluders: int, checked: Checked
) -> None:
    changes = [
        TWO,
        *SHARED,
        "aggregation.ready=5",
        f"secure_sum.dropouts={dropouts}",
        f"secure_sum.colluders={colluders}",
    ]
    changes += [] if most is None else [f"aggregation.max_participations={most}"]
    if colluders:
        changes += ["secure_sum.adversary=passive"]
    plan = checked(*changes, counts=SIX)
    assert plan.secure is not None
    assert (plan.secure.cohort, plan.secure.fewest, plan.secure.honest) == (5, 5 - dropouts, 5 - dropouts - colluders)
    for terms in plan.sites:
        charge = plan.charges[terms.name]
        (event,) = charge.round_events
        assert terms.participations == (most or 40)
        assert isinstance(event, DiscreteGaussianEvent)
        assert event.shares == 5 - dropouts - colluders
        assert charge.epsilon[plan.against] == pytest.approx(
            bound(((event, most or 40),), 1e-5 - charge.extra_delta).epsilon
        )
        assert plan.site(terms.name).events[0] == (event, most or 40)
    assert max(charge.epsilon[plan.against] or 9 for charge in plan.charges.values()) <= 1.0


def test_no_amplification_by_who_happens_to_be_ready(checked: Checked) -> None:
    """The same noise and turns cost the same, whether half or all are added, and what a site is not charged it may not do."""
    waits = checked("privacy.epsilon=1", "training.rounds=30", counts=SIX)
    for mode in (TWO, BUFFERED):
        plan = checked(mode, "aggregation.max_participations=30", counts=SIX)
        assert plan.noise_multiplier == waits.noise_multiplier
        assert [charge.round_events for charge in plan.charges.values()] == [
            charge.round_events for charge in waits.charges.values()
        ]


def test_noise_at_the_server_covers_the_heaviest_of_all_sites_whoever_is_ready(checked: Checked) -> None:
    plan = checked(TWO, *SITE, "privacy.noise=server", counts=SIX)
    events = {name: charge.round_events[0] for name, charge in plan.charges.items()}
    assert isinstance(events["F"], Event)
    assert events["F"].noise_multiplier == plan.noise_multiplier  # the heaviest
    assert all(
        isinstance(event, Event) and event.noise_multiplier >= plan.noise_multiplier for event in events.values()
    )
    assert all(charge.epsilon["server"] is None for charge in plan.charges.values())


def test_a_budget_that_pays_for_fewer_rounds_cuts_what_a_site_may_begin(checked: Checked) -> None:
    plan = checked(TWO, *SHARED, "aggregation.ready=3", "privacy.noise_multiplier=12", "training.rounds=4000")
    assert 0 < len(plan.schedule) < 4000
    assert {terms.participations for terms in plan.sites} == {len(plan.schedule)}
    assert plan.epsilon is not None
    assert plan.epsilon <= 1.0


def test_the_forecast_counts_what_is_added(checked: Checked) -> None:
    two, waits = forecast(checked(TWO, counts=SIX)), forecast(checked(counts=SIX))
    assert two["up"] == pytest.approx(waits["up"] / 2, rel=0.05)


def test_shared_batch_statistics_wait_for_all(tmp_path: Path) -> None:
    text = (
        '[data]\nsource = "heart"\n[sites]\ncounts = "public"\n[model]\nname = "tests.rounds.models:with_norm"\n'
        '[training]\nalgorithm = "fedavg"\nbatch = "full"\nlocal_steps = 1\n[aggregation]\nmode = "{}"\n'
    )
    make: Callable[[str], Any] = lambda mode: prepare(from_text(text.format(mode)), tmp_path)  # noqa: E731
    assert make("synchronous").run_plan.plan.aggregation.mode == "synchronous"
    with pytest.raises(PlanError, match="two-phase fedavg"):
        make("two-phase")


def test_the_digest_names_the_mode(checked: Checked) -> None:
    plans = [checked(*changes) for changes in ((), (TWO,), (TWO, "aggregation.max_staleness=2"), (BUFFERED,))]
    assert len({plan.digest for plan in plans}) == 4
    assert replace(plans[0]).digest == plans[0].digest
