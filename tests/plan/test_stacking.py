"""Plans whose sites answer once: what they charge, and what they may not ask for."""

from collections.abc import Callable

import pytest

from consilia.core.errors import PlanError
from consilia.core.spec import Adjacency, Segment
from consilia.dp.event import EpsilonDeltaEvent
from consilia.plan.check import check
from consilia.plan.facts import facts
from consilia.plan.load import from_text
from consilia.plan.run_plan import RunPlan
from consilia.plan.stack_work import stack_shape, stack_work
from consilia.report.card import build

Checked = Callable[..., RunPlan]

PLAN = """
[data]
source = "heart"
split = "exact"
[training]
algorithm = "stacking"
rounds = 1
batch = "full"
[privacy]
unit = "record"
epsilon = 1.0
"""


def test_each_site_is_charged_once_and_the_claim_is_pure(checked: Checked) -> None:
    run = checked(text=PLAN)
    assert (run.epsilon, run.delta, run.adjacency) == (1.0, 0.0, Adjacency.ADD_REMOVE)
    for terms in run.sites:
        assert run.site(terms.name).events == ((EpsilonDeltaEvent(1.0), 1),)
        assert run.charges[terms.name].epsilon == dict.fromkeys(run.charges[terms.name].epsilon, 1.0)


def test_a_delta_is_charged_too(checked: Checked) -> None:
    run = checked("privacy.delta=1e-5", text=PLAN)
    assert (run.epsilon, run.delta) == (1.0, 1e-5)
    assert run.charges["A"].round_events == (EpsilonDeltaEvent(1.0, 1e-5),)


def test_the_work_is_what_is_charged() -> None:
    changes = ('stack.parts="features"', "stack.count=3", "stack.importance=[2, 1, 1]", "privacy.delta=1e-6")
    plan = from_text(PLAN, changes)
    work = stack_work(plan, stack_shape(plan, 13), 199)
    assert work.event == EpsilonDeltaEvent(1.0, 1e-6)
    assert (work.rows, len(work.shape.blocks)) == (199, 3)
    assert work.shares == pytest.approx((0.5, 0.25, 0.25))


def test_a_chain_asks_each_site_once(checked: Checked) -> None:
    chain = ("training.rounds=4", 'aggregation.selection="count"', "aggregation.count=1", "stack.pull=3")
    run = checked(*chain, text=PLAN)
    assert sorted(site for asked in run.schedule for site in asked) == ["A", "B", "C", "D"]
    assert run.epsilon == 1.0


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (("training.rounds=2", "stack.pull=1"), "asks each site at most once with stacking; got more for A, B, C, D"),
        (("training.rounds=2",), "plan key stack.pull needs a weight above 0 with several rounds"),
        (("stack.pull=1",), "plan key stack.pull needs a model to be drawn to"),
        (('privacy.unit="site"',), 'needs privacy.unit = "record"; got "site"'),
        (('privacy.noise="server"',), 'needs privacy.noise = "site"; got "server"'),
        (('training.batch="fixed"', "training.batch_size=8"), 'needs training.batch = "full"; got "fixed"'),
        (("privacy.clip_norm=1",), "plan key privacy.clip_norm needs training.algorithm"),
        (("privacy.noise_multiplier=1",), "plan key privacy.noise_multiplier needs training.algorithm"),
        (('training.server_optimizer="momentum"',), "plan key training.server_optimizer needs training.algorithm"),
        (('training.keep="ema"',), "plan key training.keep needs training.algorithm"),
        (("training.learning_rate=1",), 'plan key training.learning_rate needs training.algorithm = "fedavg"'),
        (("messages.quantize_bits=8",), "plan key messages.quantize_bits needs training.algorithm"),
        (("messages.random_k=0.5",), "plan key messages.random_k needs training.algorithm"),
        (('model.name="mlp"',), "plan key model.name needs training.algorithm"),
        (('stack.parts="features"',), 'plan key stack.count needs at least 2 with stack.parts = "features"; got nothing'),
        (('stack.parts="samples"', "stack.count=1"), "plan key stack.count needs at least 2"),
        (("stack.count=3",), 'plan key stack.count needs stack.parts = "samples" or "features"'),
        (("stack.measured=0.1",), 'plan key stack.measured needs stack.parts = "features"'),
        (('stack.parts="features"', "stack.count=3", "stack.importance=[1, 2]"), "stack.importance needs 3 numbers"),
        (
            ('stack.parts="features"', "stack.count=2", "stack.importance=[1, 2]", "stack.measured=0.1"),
            "plan key stack.measured needs a plan without stack.importance",
        ),
        (('evaluation.metrics="charged"', "evaluation.noise_multiplier=9"), 'evaluation.metrics = "public" or "hidden"'),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(
    changes: tuple[str, ...], told: str, problems: Callable[..., list[str]]
) -> None:
    assert any(told in problem for problem in problems(*changes, text=PLAN))


def test_an_epsilon_is_needed(problems: Callable[..., list[str]]) -> None:
    text = PLAN.replace("epsilon = 1.0", "delta = 1e-5")
    assert any("needs privacy.epsilon; got none" in problem for problem in problems(text=text))


def test_the_section_is_for_stacks_alone(problems: Callable[..., list[str]]) -> None:
    (told,) = problems("stack.ridge=5")
    assert told.startswith('plan key stack.ridge needs training.algorithm = "stacking"')


def test_more_than_two_classes_are_refused() -> None:
    with pytest.raises(PlanError, match="two classes; got 3"):
        check(from_text(PLAN), counts={"A": 9}, input_shape=(2,), classes=3, segments=(Segment("weights", (3,)),))


def test_more_blocks_than_columns_are_refused() -> None:
    with pytest.raises(PlanError, match="features: 2 or more disjoint blocks"):
        stack_shape(from_text(PLAN, ('stack.parts="features"', "stack.count=5")), 3)


def test_the_card_says_what_is_trained(checked: Checked) -> None:
    changes = ('stack.parts="features"', "stack.count=3", "privacy.delta=1e-6")
    card = build(facts(checked(*changes, text=PLAN)), {})
    rows = {row.label: (row.value, row.note) for group in card.groups for row in group.rows}
    assert rows["Stack"][0] == "features"
    assert rows["Stack"][1].startswith("3 logistic regressions on blocks of columns")
    assert rows["Noise"][0] == "Gaussian"
    assert rows["Delta"][0] == "1e-6"
    assert rows["Updates"][0] == "each site's stack, private by itself"
    assert "Clip norm" not in rows
