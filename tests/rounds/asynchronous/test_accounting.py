"""What a run claims, held against what its sites' ledgers say and against the law of what was published."""

from collections import Counter
from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2, kstest
from tests.rounds.asynchronous.stage import DELAYS, FEDAVG, FEDSGD, MASKS, SITES, Stage, claim, slow

from consilia.dp.accountant import bound
from consilia.rounds.ports import Trained

StageMaker = Callable[..., Stage]
CLAIMS = [
    pytest.param("two-phase", MASKS, "site", "distributed", id="site, shares"),
    pytest.param("two-phase", MASKS, "record", "distributed", id="record, shares"),
    pytest.param("two-phase", MASKS, "record", "site", id="record, own noise, masks"),
    pytest.param("two-phase", "", "site", "server", id="site, server"),
    pytest.param("buffered", "", "site", "site", id="site, own noise, buffered"),
    pytest.param("buffered", "", "record", "site", id="record, own noise, buffered"),
]


@pytest.mark.parametrize(("mode", "secure", "unit", "noise"), CLAIMS)
def test_ledgers_hold_at_most_what_is_claimed_and_at_least_what_was_released(
    mode: str, secure: str, unit: str, noise: str, stage: StageMaker
) -> None:
    training = FEDSGD if unit == "record" else FEDAVG
    plan = slow(mode=mode, secure=secure, training=training, privacy=claim(unit, noise, z=5.0), rounds=7,
                aggregation="max_participations = 6")  # fmt: skip
    one = stage(plan)
    records = one.train()
    released = Counter(site for record in records for site in record["answered"])
    for terms in one.plan.sites:
        store, charge = one.simulation.sites[terms.name]._store, one.plan.charges[terms.name]
        assert store is not None
        spent = store.charged("stage")
        ((event, count),) = spent
        assert event == charge.round_events[0]
        assert released[terms.name] <= count <= terms.participations == 6
        delta = plan.privacy.delta or 0.0
        claimed = charge.epsilon[one.plan.against]
        assert claimed is not None
        assert bound(tuple(spent), delta - charge.extra_delta).epsilon <= claimed <= (one.plan.epsilon or 0.0)
        (allotment,) = store.allotments("heart")
        assert (allotment.epsilon, allotment.events) == (claimed, ((event, 6),))
        store.verify("heart")
    assert records[-1]["epsilon_spent"] <= (one.plan.epsilon or 0.0)
    assert max(one.coordinator.state.charges[site][0] for site in SITES) <= 6
    for site in SITES:  # the coordinator's copy is never below the ledger
        assert one.coordinator.state.charges[site][0] >= one.charged(site)


def quiet(one: Stage) -> None:
    """Let every learner hand over nothing but zeros: what is published is the noise."""
    for site in one.simulation.sites.values():
        learner: Any = site._learner
        learner.train = lambda payload, *_: Trained(np.zeros_like(payload), {}, None)


@pytest.mark.parametrize("unit", ["site", "record"])
def test_published_noise_is_as_loud_as_planned_however_old_the_updates_are(unit: str, stage: StageMaker) -> None:
    """Each round's mean carries the shares of its cohort whole: a cohort's size and public weights say their variance."""
    training = FEDSGD.replace("0.1", "1.0") if unit == "record" else FEDAVG
    plan = slow(secure=MASKS, training=training, privacy=claim(unit, "distributed", z=20.0), rounds=40)
    one = stage(plan)
    quiet(one)
    models = [one.model.astype(np.float64)]
    one.coordinator.train(lambda _record: models.append(one.model.astype(np.float64)))
    records, secure = one.journal.records(), one.plan.secure
    assert secure is not None
    weights = {terms.name: terms.weight for terms in one.plan.sites}
    heaviest, (grid,) = max(weights.values()), secure.grids
    scaled: dict[bool, list[np.ndarray[Any, Any]]] = {False: [], True: []}
    for step, record in zip(np.diff(models, axis=0), records, strict=True):
        assert record["status"] == "counted"
        deviation = grid.deviation(len(record["answered"])) * heaviest / sum(weights[site] for site in record["asked"])
        old = max(record["staleness"].values()) > 0
        scaled[old].append(step / deviation)
    assert len(scaled[True]) > 10
    assert len(scaled[False]) > 5
    for draws in scaled.values():
        flat = np.concatenate(draws)
        low, high = chi2.ppf([5e-5, 1 - 5e-5], flat.size) / flat.size
        assert low < np.mean(flat**2) < high
        assert kstest(flat, "norm").pvalue > 1e-4
        # It would see noise that is scaled down with the updates: two steps behind, a third of the shares.
        assert not low < np.mean((flat * sqrt(1 / 1.5)) ** 2) < high


def test_shares_of_fewer_sites_than_usual_are_enough_for_the_claim(stage: StageMaker) -> None:
    """At the deadline a cohort may be smaller by what may drop out, and by no more."""
    plan = slow(secure=MASKS + "\ndropouts = 1", ready=4, rounds=3, privacy=claim("site", "distributed"))
    plan = plan.model_copy(update={"aggregation": plan.aggregation.model_copy(update={"deadline_seconds": 3.0})})
    one = stage(plan, {**DELAYS, SITES[3]: 100.0})
    (event,) = {charge.round_events[0].shares for charge in one.plan.charges.values()}  # type: ignore[union-attr]
    assert event == 3
    records = one.train()
    assert [record["answered"] for record in records] == [list(SITES[:3])] * 3
    fewer = stage(plan, {**DELAYS, SITES[3]: 100.0, SITES[2]: 100.0}, folder="fewer")
    reasons = [record["reason"] for record in fewer.train()]
    assert reasons == ["2 of 4 ready; 3 needed"] * 3
