"""Phases: each with its own mechanism, all under one bound; and a budget that ends the run."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consilia.core.errors import PlanError
from consilia.dp.accountant import bound
from consilia.dp.event import Event
from consilia.plan.facts import facts
from consilia.plan.load import from_text
from consilia.plan.phases import first_rounds, phases, total_rounds
from consilia.plan.run_plan import RunPlan
from consilia.report.card import build, claim, verdict_of

Checked = Callable[..., RunPlan]

PLAN = """
[data]
source = "heart"
[sites]
counts = "public"
[training]
algorithm = "fedsgd"
batch = "poisson"
sampling_rate = 0.2
server_learning_rate = 0.5
{training}
[privacy]
unit = "record"
delta = 1e-5
{privacy}
{phases}
"""
CHARGED = '[evaluation]\nmetrics = "charged"\nnoise_multiplier = 20.0\n'
# What only a run with a claim may say.
CLAIMS = (
    "epsilon includes", "one budget", "cost nothing more", "the guarantee allows", "the claim does not", "privately trained",
)  # fmt: skip
TWO = "[[phases]]\nrounds = 3\n{first}\n[[phases]]\nrounds = 5\n{second}"


def text(*, privacy: str = "epsilon = 2.0\nclip_norm = 1.0", phases: str = "", training: str = "") -> str:
    return PLAN.format(privacy=privacy, phases=phases, training=training)


def two(first: str = "", second: str = "", **rest: str) -> str:
    return text(phases=TWO.format(first=first, second=second), **rest)


def test_a_plan_without_phases_is_one() -> None:
    plan = from_text(text(training="rounds = 7"))
    (only,) = phases(plan)
    assert (only.first, only.last, only.plan, only.noise_scale, only.train) == (1, 7, plan, 1.0, "all")


def test_phases_follow_one_another_with_their_own_settings(checked: Checked) -> None:
    run = checked(text=two("sampling_rate = 0.1", "clip_norm = 0.5\nserver_learning_rate = 0.1"))
    first, second = run.phases
    assert [(phase.first, phase.last) for phase in run.phases] == [(1, 3), (4, 8)]
    assert [phase.plan.training.sampling_rate for phase in run.phases] == [0.1, 0.2]
    assert [phase.plan.privacy.clip_norm for phase in run.phases] == [1.0, 0.5]
    assert (first.plan.training.server_learning_rate, second.plan.training.server_learning_rate) == (0.5, 0.1)
    assert [run.phase(number).index for number in (1, 3, 4, 8, 99)] == [0, 0, 1, 1, 1]
    assert total_rounds(run.plan) == len(run.schedule) == 8
    expected = [[phase.expected_batch for phase in terms.phases] for terms in run.sites]
    assert expected == [[0.1 * terms.count, 0.2 * terms.count] for terms in run.sites]


def test_one_bound_covers_all_phases(checked: Checked) -> None:
    run = checked(text=two("sampling_rate = 0.1\nnoise_scale = 2", "noise_scale = 0.5"))
    for terms in run.sites:
        charge = run.charges[terms.name]
        assert [event.noise_multiplier for event in charge.round_events if isinstance(event, Event)] == [
            2 * run.noise_multiplier, run.noise_multiplier / 2,
        ]  # fmt: skip
        whole = [
            (event, part.participations) for event, part in zip(charge.round_events, terms.phases, strict=True) if event
        ]
        found = bound(whole, 1e-5 - charge.extra_delta).epsilon
        assert charge.epsilon["server"] == found
        assert all(bound([part], 1e-5 - charge.extra_delta).epsilon < found for part in whole)
    assert run.epsilon is not None
    assert 1.999 < run.epsilon <= 2.0


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rounds=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    scales=st.tuples(st.sampled_from([0.5, 1.0, 3.0]), st.sampled_from([0.5, 1.0, 3.0])),
)
def test_equal_phases_cost_what_one_of_their_length_costs(
    checked: Checked, rounds: tuple[int, int], scales: tuple[float, float]
) -> None:
    parts = "".join(
        f"[[phases]]\nrounds = {count}\nnoise_scale = {scale}\n" for count, scale in zip(rounds, scales, strict=True)
    )
    noise = "noise_multiplier = 3.0\nclip_norm = 1.0"
    split = checked(text=text(privacy=noise, phases=parts))
    whole = checked(text=text(privacy=noise, training=f"rounds = {sum(rounds)}"))
    assert split.epsilon is not None
    assert whole.epsilon is not None
    if scales == (1.0, 1.0):
        assert split.epsilon == pytest.approx(whole.epsilon, rel=1e-9)
    if max(scales) < 1:
        assert split.epsilon > whole.epsilon
    if min(scales) > 1:
        assert split.epsilon < whole.epsilon


@pytest.mark.parametrize("quiet", ["first", "second"])
def test_a_phase_without_noise_voids_the_claim_of_the_whole(checked: Checked, quiet: str) -> None:
    noise = "noise_multiplier = 2.0\nclip_norm = 1.0"
    run = checked(text=two(**{quiet: "noise = false"}, privacy=noise) + CHARGED)
    assert run.epsilon is None
    assert all(set(charge.epsilon.values()) == {None} for charge in run.charges.values())
    silent = 0 if quiet == "first" else 1
    assert all(charge.round_events[silent].noise_multiplier == 0 for charge in run.charges.values())  # type: ignore[union-attr]
    assert any("no (epsilon, delta) holds" in warning for warning in run.warnings)
    seen = facts(run)
    rounds = "rounds 1 to 3" if quiet == "first" else "rounds 4 to 8"
    assert verdict_of(seen) == "not-private"
    assert claim(seen) == f"no epsilon: {rounds} add no noise"
    card = build(seen, {})
    assert rounds in card.statement
    assert card.bounds[0].epsilon == ("none",) * 4
    assert any(point.startswith("Anything") for point in card.not_covered)
    said = {row.label: f"{row.value} {row.note}" for group in card.groups for row in group.rows}
    assert f"noised except in {rounds}" in said["Updates"]
    assert "in clear" in said["Norms and directions"]
    assert "no amplification is claimed" in said["Sampling of records"]
    whole = " ".join([*said.values(), *card.warnings])
    assert not [claimed for claimed in CLAIMS if claimed in whole]


def test_with_noise_in_every_phase_the_card_says_what_the_claim_rests_on(checked: Checked) -> None:
    said = {
        row.label: f"{row.value} {row.note}"
        for group in build(facts(checked(text=two() + CHARGED)), {}).groups
        for row in group.rows
    }
    assert "epsilon includes" in said["Metrics"]
    assert "one budget" in said["Phases"]
    assert "amplification is claimed for this alone" in said["Sampling of records"]
    assert "clipped and noised" in said["Updates"]


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (
            two("noise = false", "noise = false", privacy="noise_multiplier = 2.0\nclip_norm = 1.0"),
            "a phase with noise",
        ),
        (two("noise = false"), "noise in every phase"),
        (
            two("noise = false", privacy="noise_multiplier = 2.0\nclip_norm = 1.0") + "[ledger]\nmax_epsilon = 9.0\n",
            "ledger.max_epsilon needs noise in every phase",
        ),
        (two("batch_size = 3"), 'phases.1.batch_size needs training.batch = "fixed"'),
        (two(second="local_steps = 3"), 'phases.2.local_steps needs training.algorithm = "fedavg"'),
        (two(training="rounds = 9"), "training.rounds needs a plan without phases"),
        (two('train = "head"', privacy='noise = "server"\nepsilon = 1.0\nclip_norm = 1.0'), "noise inside training"),
        (two("sampling_rate = 2"), "phases.1.sampling_rate"),
        (two("rate = 2"), "phases.1.rate"),
        ("phases = 3\n" + text(), "Write it below [[phases]]"),
        (text(phases="[phases]\nrounds = 3\n"), "Write it below [[phases]]"),
    ],
)
def test_what_phases_may_not_be(checked: Checked, plan: str, words: str) -> None:
    with pytest.raises(PlanError) as caught:
        checked(text=plan)
    assert words in str(caught.value)


def test_noise_and_epsilon_together_end_the_run(checked: Checked) -> None:
    both = "noise_multiplier = 3.0\nepsilon = 1.0\nclip_norm = 1.0"
    run = checked(text=text(privacy=both, training="rounds = 400"))
    ran = len(run.schedule)
    assert 1 < ran < 400
    assert run.epsilon is not None
    assert run.epsilon <= 1.0
    alone = "noise_multiplier = 3.0\nclip_norm = 1.0"
    one_more = checked(text=text(privacy=alone, training=f"rounds = {ran + 1}"))
    assert one_more.epsilon is not None
    assert one_more.epsilon > 1.0
    assert any(f"pays for {ran} of the 400 rounds" in warning for warning in run.warnings)
    assert facts(run)["rounds"] == ran
    # What the budget pays for in full is not cut; and the number is the same every time, so a resumed run agrees.
    assert len(checked(text=text(privacy=both, training=f"rounds = {ran}")).schedule) == ran
    assert checked(text=text(privacy=both, training="rounds = 400")).digest == run.digest


def test_the_budget_can_end_in_a_later_phase(checked: Checked) -> None:
    both = "noise_multiplier = 3.0\nepsilon = 1.0\nclip_norm = 1.0"
    plan = text(privacy=both, phases="[[phases]]\nrounds = 4\n[[phases]]\nrounds = 400\nsampling_rate = 0.3\n")
    run = checked(text=plan)
    assert [phase.rounds for phase in run.phases] == [4, len(run.schedule) - 4]
    assert run.phases[1].rounds < 400
    with pytest.raises(PlanError, match="enough noise for one round"):
        checked(text=text(privacy="noise_multiplier = 0.3\nepsilon = 0.5\nclip_norm = 1.0"))


def test_cutting_to_the_first_rounds() -> None:
    plan = from_text(two())
    assert [section.rounds for section in first_rounds(plan, 2).phases] == [2]
    assert [section.rounds for section in first_rounds(plan, 3).phases] == [3]
    assert [section.rounds for section in first_rounds(plan, 7).phases] == [3, 4]
    assert first_rounds(plan, 8) == plan


def test_cut_batches_of_all_phases_are_paid_for(checked: Checked) -> None:
    one = checked("training.batch_cap=75", text=text(training="rounds = 5"))
    both = checked("training.batch_cap=75", text=text(phases="[[phases]]\nrounds = 5\n[[phases]]\nrounds = 5\n"))
    extras: list[Any] = [run.charges["A"].extra_delta for run in (one, both)]
    assert 0 < extras[0] < extras[1]
    assert math.isclose(extras[1], 2 * extras[0], rel_tol=0.2)


FIXED_OWN = """
[data]
source = "csv"
path = "rows.csv"
label = "y"
classes = ["a", "b"]
id_column = "i"
site_column = "s"
numeric = {{ z = [0.0, 1.0] }}
[sites]
population = "people"
counts = {{ A = 100 }}
[training]
batch = "fixed"
batch_size = 100
local_epochs = 1
[privacy]
unit = "record"
noise_multiplier = 4.0
clip_norm = 1.0
delta = 1e-6
[[phases]]
rounds = 2
[[phases]]
rounds = 2
batch_size = {size}
"""


def test_a_registered_count_must_give_the_batches_of_every_phase(checked: Checked) -> None:
    # 90 rows in batches of 30 are three a pass; the four steps that 100 registered rows stand for would use 30 of them twice.
    with pytest.raises(PlanError, match=r"sites\.counts\.A needs the exact number of rows"):
        checked(text=FIXED_OWN.format(size=30), counts={"A": 90})
    run = checked(text=FIXED_OWN.format(size=60), counts={"A": 90})
    assert [event.steps for event in run.charges["A"].round_events if isinstance(event, Event)] == [1, 1]


@pytest.mark.parametrize("rounds", [[10**12], [10**7, 1]])
def test_phases_have_no_more_rounds_than_a_plan_without_any(rounds: list[int], checked: Checked) -> None:
    with pytest.raises(PlanError, match="10000000"):
        checked(text=text(phases="".join(f"[[phases]]\nrounds = {number}\n" for number in rounds)))


ADAPTIVE = 'noise_multiplier = 2.0\nclip_norm = 1.0\nclipping = "adaptive"\n'


def test_an_adaptive_bound_goes_on_through_the_phases(checked: Checked) -> None:
    assert checked(text=two("clip_norm = 0.5", privacy=ADAPTIVE)).epsilon is not None
    with pytest.raises(PlanError, match=r"phases\.2\.clip_norm"):
        checked(text=two(second="clip_norm = 0.5", privacy=ADAPTIVE))


@pytest.mark.parametrize(("count_noise", "scale", "fits"), [(1.1, 1.0, True), (1.0, 1.0, False), (1.1, 2.0, False)])
def test_a_count_that_costs_the_whole_step_is_refused_by_check(
    checked: Checked, count_noise: float, scale: float, fits: bool
) -> None:
    plan = two(second=f"noise_scale = {scale}", privacy=f"{ADAPTIVE}count_noise = {count_noise}")
    if fits:
        assert checked(text=plan).epsilon is not None
        return
    with pytest.raises(PlanError, match=r"privacy\.count_noise needs more than half"):
        checked(text=plan)


def test_a_scale_of_no_noise_is_refused(checked: Checked) -> None:
    with pytest.raises(PlanError, match="noise = true"):
        checked(text=two("noise = false\nnoise_scale = 2.0", privacy="noise_multiplier = 2.0\nclip_norm = 1.0"))


def test_too_many_phases_are_counted(checked: Checked) -> None:
    with pytest.raises(PlanError, match="phases needs at most 50 phases; got 51"):
        checked(text=text(phases="[[phases]]\nrounds = 1\n" * 51))
