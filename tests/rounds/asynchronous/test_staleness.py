"""What an old update counts for: exactly 1/sqrt(1 + tau), and never more than the sensitivity that noise is scaled for."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.rounds.asynchronous.stage import FEDSGD, MASKS, Stage, claim, slow

from consilia.core.randomness import SecretRng, SharedSeed
from consilia.federation.simulation import prepare
from consilia.pipeline.transform import SiteContext
from consilia.plan.schema import Plan
from consilia.rounds.asynchronous.staleness import staleness_weight
from consilia.rounds.pipelines import pipelines
from consilia.rounds.ports import Trained

StageMaker = Callable[..., Stage]


def test_the_weight_is_the_root_of_the_age() -> None:
    assert [staleness_weight(tau) for tau in (0, 1, 3, 8)] == [1.0, 1 / math.sqrt(2), 0.5, 1 / 3]


def spied(one: Stage) -> dict[str, NDArray[np.float64]]:
    """Return a table that always holds each site's newest update as its learner gave it."""
    found: dict[str, NDArray[np.float64]] = {}
    for name, site in one.simulation.sites.items():
        learner: Any = site._learner
        train = learner.train

        def noted(*arguments: Any, _name: str = name, _train: Any = train) -> Trained:
            trained: Trained = _train(*arguments)
            found[_name] = trained.vector.astype(np.float64)
            return trained

        learner.train = noted
    return found


@pytest.mark.parametrize(("mode", "secure", "steps"), [("two-phase", "", 0.0), ("buffered", "", 0.0), ("two-phase", MASKS, 1.0)],
                         ids=["two-phase", "buffered", "masks"])  # fmt: skip
def test_the_step_is_the_sum_of_weighted_old_updates_over_whole_weights(
    mode: str, secure: str, steps: float, stage: StageMaker
) -> None:
    one = stage(slow(mode=mode, secure=secure, rounds=8))
    updates, weights = spied(one), {terms.name: float(terms.weight) for terms in one.plan.sites}
    models, expected = [one.model.astype(np.float64)], []

    def counted(record: dict[str, Any]) -> None:
        ages = record["staleness"]  # none of these is asked for another update before the next round
        total = sum(weights[site] / math.sqrt(1 + tau) * updates[site] for site, tau in ages.items())
        expected.append(total / sum(weights[site] for site in ages))
        models.append(one.model.astype(np.float64))

    one.coordinator.train(counted)
    ages = [record["staleness"] for record in one.journal.records()]
    assert {tau for record in ages for tau in record.values()} == {
        0,
        1,
        2,
    }  # the delays are such that each age comes up
    secure_terms = one.plan.secure
    grid = steps * 2 / secure_terms.grids[0].scale if secure_terms is not None else 0.0
    for (before, after), step in zip(pairwise(models), expected, strict=True):
        assert np.abs(after - before - step).max() <= grid + 1e-6


EVERY = [
    *[("masks", unit, noise) for unit, noise in (("site", "distributed"), ("record", "distributed"), ("site", "site"))],
    ("none", "site", "site"), ("none", "site", "server"), ("none", "record", "server"),
]  # fmt: skip


def plan_for(secure: str, unit: str, noise: str, *, z: float = 1.0) -> Plan:
    training = FEDSGD if unit == "record" else 'algorithm = "fedavg"\nbatch = "full"\nlocal_steps = 2'
    return slow(secure=MASKS if secure == "masks" else "", privacy=claim(unit, noise, z=z), training=training)


@pytest.mark.parametrize(("secure", "unit", "noise"), EVERY)
def test_no_update_of_any_age_moves_the_sum_by_more_than_the_noise_is_scaled_for(
    secure: str, unit: str, noise: str, tmp_path: Any
) -> None:
    """The chain without its noise, on any vector that the learner may hand over: what it adds is within the bound."""
    plan = prepare(plan_for(secure, unit, noise), tmp_path).run_plan
    (pipeline,) = pipelines(plan, control_dim=0)
    steps = [step for step in pipeline.chain.transforms if not type(step).__name__.endswith(("Noise", "NoiseShare"))]
    heaviest = max(terms.weight for terms in plan.sites)
    dim, protection = plan.spec.dim, pipeline.protection

    @settings(max_examples=60, deadline=None)
    @given(
        st.integers(0, 2**32 - 1), st.sampled_from([1e-6, 0.3, 1.0, 7.0, 1e6]), st.integers(0, 50), st.integers(0, 3)
    )
    def holds(seed: int, size: float, tau: int, place: int) -> None:
        terms = plan.sites[place]
        rng = np.random.default_rng(seed)
        vector = rng.normal(size=dim)
        bound = protection.site_bound(terms.name)
        # A record's learner clips by itself: what it hands over moves by the site's bound at most.
        vector *= (size if unit == "site" else min(size, 1.0) * bound) / np.linalg.norm(vector)
        context = SiteContext(
            SecretRng(seed.to_bytes(32, "big")), SharedSeed.of(1), terms.weight / heaviest * staleness_weight(tau)
        )
        out: Any = vector
        for step in steps:
            out = step.encode(out, context)
        moved = float(np.linalg.norm(np.asarray(out, np.float64))) / pipeline.chain.scale
        if secure == "none":
            moved *= terms.weight / heaviest * staleness_weight(tau)  # weighed where it is seen
        exact = terms.weight / heaviest * bound * staleness_weight(tau)
        slack = 1.0
        if pipeline.grid is not None and pipeline.grid.l2 is not None:
            assert moved <= pipeline.grid.l2 / pipeline.grid.scale * (1 + 1e-9)
            slack = 1.02  # rounding adds at most one in a hundred for the site that counts most
            exact = max(exact, 0.03 * bound)
        elif secure == "masks":
            exact += math.sqrt(dim) / pipeline.chain.scale
        assert moved <= exact * slack + 1e-9

    holds()


def test_the_test_above_sees_a_weight_that_grows(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.rounds.asynchronous.test_staleness.staleness_weight", lambda tau: 1.0 + 0.1 * tau)
    with pytest.raises(Exception, match=r"at most 1|assert"):
        test_no_update_of_any_age_moves_the_sum_by_more_than_the_noise_is_scaled_for(
            "masks", "site", "distributed", tmp_path
        )
