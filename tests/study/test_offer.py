"""The price of a search is the claim of its trials: who it holds against, what it costs, what is refused."""

import math
from pathlib import Path

import pytest
from tests.study.conftest import plan, tuned

from consilia.core.errors import PlanError
from consilia.dp.selection import price
from consilia.dp.selection_trials import Fixed, NegativeBinomial
from consilia.federation.simulation import prepare
from consilia.study import space
from consilia.study.offer import Offer, offer

HERE = Path()


def _offer(*overrides: str, **changes: object) -> Offer:
    return offer(plan(*overrides), tuned(**changes), HERE)


def test_the_whole_search_meets_the_target_and_not_by_much() -> None:
    found = _offer()
    assert 1.99 < found.epsilon <= 2.0
    assert found.one < found.epsilon
    bases = found.sites["site-01"].bases
    assert len(bases) == 2
    assert price(bases, NegativeBinomial.of_mean(1.0, 4.0), 1e-4).epsilon == found.epsilon
    noise = {values["training.rounds"]: z for values, z in found.noise}
    assert noise[3] == pytest.approx(noise[2] * math.sqrt(1.5), rel=1e-3)  # every candidate gets the same budget


def test_an_epsilon_in_the_tune_file_goes_before_the_plans() -> None:
    assert 0.99 < _offer(epsilon=1.0).epsilon <= 1.0


def test_noise_that_the_plan_states_has_a_price() -> None:
    stated = plan()
    stated = stated.model_copy(
        update={"privacy": stated.privacy.model_copy(update={"epsilon": None, "noise_multiplier": 5.0})}
    )
    found = offer(stated, tuned(), HERE)
    assert {z for _, z in found.noise} == {5.0}
    assert found.epsilon == price(found.sites["site-01"].bases, found.law, 1e-4).epsilon


def test_every_trial_carries_the_claim_of_the_search_and_nothing_against_the_coordinator() -> None:
    found = _offer()
    trial = prepare(found.trial({"training.rounds": 3, "training.server_learning_rate": 0.2}), HERE).run_plan
    assert trial.epsilon is not None
    assert trial.epsilon < found.epsilon
    claimed = found.claim(trial, "search-1")
    assert (claimed.epsilon, claimed.against, claimed.within) == (found.epsilon, "world", "search-1")
    epsilon = claimed.charges["site-01"].epsilon
    assert epsilon == {"server": None, "server+colluding-sites": None, "other-sites": None, "world": found.epsilon}
    assert "kept secret" in claimed.warnings[0]
    assert claimed.digest == trial.digest


def test_a_trial_that_would_charge_more_is_not_covered() -> None:
    found = _offer()
    longer = prepare(space.with_values(found.trial({"training.rounds": 3}), {"training.rounds": 4}), HERE).run_plan
    with pytest.raises(PlanError, match="a charge that the price of the search covers"):
        found.claim(longer, "search-1")


def test_a_fixed_number_is_charged_in_full_against_whoever_the_plan_names() -> None:
    found = _offer("privacy.against=server", distribution="fixed", search={"training.server_learning_rate": [0.1, 1.0]})
    assert found.law == Fixed(4)
    events = found.sites["site-01"].bases[0]
    assert found.epsilon == pytest.approx(2.0, rel=1e-3)
    assert price([events], Fixed(4), 1e-4).epsilon == found.epsilon
    claimed = found.claim(prepare(found.trial({"training.server_learning_rate": 0.1}), HERE).run_plan, "s")
    assert claimed.charges["site-01"].epsilon["server"] == found.epsilon
    assert "all of which are charged" in claimed.warnings[0]
    # the same epsilon takes much less noise where only the winner is published
    assert found.noise[0][1] > 1.4 * _offer(search={"training.server_learning_rate": [0.1, 1.0]}).noise[0][1]


def test_cut_batches_of_all_trials_are_paid_for() -> None:
    poisson = [
        "training.batch=poisson",
        "training.sampling_rate=0.1",
        "training.algorithm=fedavg",
        "training.local_steps=1",
    ]
    found = _offer(*poisson, search={"training.learning_rate": [0.1, 1.0]})
    trial = prepare(found.trial({"training.learning_rate": 0.1}), HERE).run_plan
    own = trial.charges["site-01"].extra_delta
    assert found.sites["site-01"].extra_delta > 4 * own > 0  # four trials on average, at a larger epsilon
    with pytest.raises(PlanError, match="cut batches of all trials"):
        _offer(*poisson, "training.batch_cap=92", search={"training.learning_rate": [0.1, 1.0]}, trials=200)


def test_sites_of_other_exposure_have_prices_of_their_own_below_the_target() -> None:
    several = plan("sites.count=3", "privacy.noise=server", "aggregation.weights=n", "sites.partition=iid")
    found = offer(several, tuned(search={"training.server_learning_rate": [0.1, 1.0]}), HERE)
    epsilons = [site.epsilon for site in found.sites.values()]
    assert max(epsilons) == found.epsilon <= 2.0
    assert len(epsilons) == 3


REFUSED = [
    (["privacy.against=server"], {}, 'distribution = "fixed", which charges every trial'),
    (["evaluation.metrics=hidden"], {}, "the best trial has to be told"),
    (["training.algorithm=stacking"], {}, "A stack's noise follows other rules"),
    (["secure_sum.mode=masks"], {}, "Search in the clear"),
    (["run.reproducible=true"], {}, "Noise that anyone can recompute"),
    (["privacy.noise_multiplier=1.0"], {}, "the noise follows from the epsilon"),
    (["evaluation.metrics=charged", "evaluation.noise_multiplier=50"], {"score": "loss"}, "counts of right and wrong"),
    ([], {"search": {"privacy.epsilon": [1.0, 2.0]}}, "one that all trials share"),
    ([], {"search": {"run.seed": [1, 2]}}, "one that all trials share"),
    ([], {"search": {"data.source": ["heart", "adult"]}}, "one that all trials share"),
    ([], {"search": {"training.lerning_rate": [1.0]}}, "Did you mean training.learning_rate"),
    ([], {"search": {"training.server_learning_rate": [0.1, -1.0]}}, "server_learning_rate: plan key"),
    ([], {"search": {"training.server_learning_rate": []}}, "a list of values"),
    ([], {"search": {"training.server_learning_rate": 3}}, "a list of values"),
    ([], {"search": {"training.server_learning_rate": {"low": 2, "high": 1}}}, "numbers low < high"),
    ([], {"search": {"training.server_learning_rate": {"low": 0, "high": 1, "log": True}}}, "numbers low < high"),
    ([], {"search": {"training.rounds": {"low": 2, "high": 9}}}, "the price of the search follows from this key"),
    ([], {"search": {"training.rounds": list(range(1, 70))}}, "at most 64 combinations"),
    ([], {"search": {"model.hidden": {"low": 1, "high": 2}}}, "model.hidden"),
    ([], {"search": {"training.batch": ["full", "poisson"]}}, "training.batch"),
    ([], {"search": {"aggregation.selection": ["all", "poisson"]}}, "aggregation.selection"),
]


@pytest.mark.parametrize(("overrides", "changes", "message"), REFUSED, ids=[str(case[2])[:30] for case in REFUSED])
def test_what_cannot_be_claimed_or_tried_is_refused_before_anything_is_charged(
    overrides: list[str], changes: dict[str, object], message: str
) -> None:
    with pytest.raises(PlanError) as caught:
        offer(plan(*overrides), tuned(**changes), HERE)
    assert message in str(caught.value)


def test_nothing_is_searched_without_a_unit_to_protect() -> None:
    open_plan = plan().model_copy(update={"privacy": plan().privacy.model_copy(update={"unit": "none"})})
    with pytest.raises(PlanError, match="tune with --public"):
        offer(open_plan, tuned(), HERE)
