"""Patterns A and B for noise that sites draw in shares: what one unit moves before the noise, what noise the opened sum has,
and that no sum of too few shares is ever opened, whatever the coordinator says.

The sum is taken where the coordinator learns it; what a unit may move and what the noise must be is computed here from the
plan's own numbers, not with the product's formulas.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from tests.privacy.lab import FEDSGD, SITES, TRAINING_ROWS, Lab, Vector, counts, plan_of, privacy, with_row
from tests.privacy.test_noise import LOCAL, WIDE, has_scale

from consilia.dp.event import DiscreteGaussianEvent
from consilia.pipeline.share import NoiseShare
from consilia.plan.schema import Plan
from consilia.rounds.gather import Gathered
from consilia.store.ledger_store import SiteStore

LabMaker = Callable[..., Lab]
Z, C, ME = 3.0, 0.5, "Hungary"
SECURE = {
    "masks": 'mode = "masks"\ndropouts = 1',
    "rlwe": 'mode = "rlwe"\ndropouts = 1',
    "paillier": 'mode = "paillier"\nkey_bits = 2048\ndropouts = 1',
}


def plan_for(unit: str, mode: str = "masks", *, weights: str = "n", **more: Any) -> Plan:
    training = FEDSGD if unit == "record" else LOCAL
    return plan_of(**{
        "rounds": 20, "training": training, "protect": privacy(unit, "distributed", z=Z, clip=C), "secure": SECURE[mode],
        "aggregation": f'weights = "{weights}"', **more,
    })  # fmt: skip


@contextmanager
def silent() -> Iterator[None]:
    """Every share of the noise is zero."""
    with patch("consilia.pipeline.share.discrete_gaussian", lambda _variance, size, _rng: np.zeros(size, np.int64)):
        yield


def opened(one: Lab, model: Vector | None = None) -> Gathered:
    """Return what the coordinator learns in the next round."""
    found: list[Gathered] = []
    gatherer: Any = one.coordinator._gatherer
    gather = gatherer.updates

    def updates(*arguments: Any) -> Gathered:
        gathered: Gathered = gather(*arguments)
        found.append(replace(gathered))  # the coordinator lets go of the total once it has stepped
        return gathered

    with patch.object(gatherer, "updates", updates):
        one.round(model)
    return found[0]


def charged(one: Lab, site: str) -> DiscreteGaussianEvent:
    with SiteStore.open(one.home / "sites" / f"{site}.sqlite", site) as store:
        ((event, _),) = store.charged("lab")
    assert isinstance(event, DiscreteGaussianEvent)
    return event


def test_a_record_moves_the_sum_by_no_more_than_was_charged(lab: LabMaker) -> None:
    plan = plan_for(
        "record", "rlwe", sites=counts()
    )  # under masks sites hold the model to the transcript: none may change
    left, right = lab(plan, "left"), lab(plan, "right")
    rng = np.random.default_rng(4)
    dim, width = left.prepared.run_plan.spec.dim, left.prepared.rows[ME].train.features.shape[1]
    rows: list[Vector] = [np.asarray(rng.normal(size=width) * 10.0**k) for k in (-3, 0, 1, 4, 18)]
    rows += [np.full(width, value) for value in (0.0, np.nan, np.inf, -1e38)]
    moved = []
    with silent():
        for number, features in enumerate(rows):
            site = SITES[number % len(SITES)]
            model = rng.normal(size=dim).astype(np.float32)
            held = left.prepared.rows[site].train
            right.hold(site, with_row(held, features, number % 2))
            before, after = opened(left, model).total, opened(right, model).total
            right.hold(site, held)
            assert before is not None
            assert after is not None
            moved.append(float(np.linalg.norm(after - before)) / charged(right, site).l2)
    assert max(moved) <= 1.0
    assert max(moved) > 0.9  # the bound is met, so a scale or clip norm half as large again would not pass


def test_a_site_moves_the_sum_by_no_more_than_was_charged(lab: LabMaker) -> None:
    plan = plan_for("site")
    left, right = lab(plan, "left"), lab(plan, "right")
    rng = np.random.default_rng(5)
    dim = left.prepared.run_plan.spec.dim
    vectors: list[Vector] = [np.asarray(rng.normal(size=dim) * 10.0**k) for k in (-9, -2, 0, 6, 30)]
    vectors += [np.full(dim, value) for value in (0.0, np.nan, np.inf)] + [np.eye(dim)[3] * 1e9]
    moved = []
    with silent():
        for number, vector in enumerate(vectors):
            site = SITES[number % len(SITES)]
            for one in (left, right):
                for name in SITES:
                    one.can(name, np.ones(dim))
            left.can(site, vector)
            right.can(site, np.zeros(dim))
            there, gone = opened(left), opened(right)
            assert there.total is not None
            assert gone.total is not None
            moved.append(float(np.linalg.norm(there.total - gone.total)) / charged(left, site).l2)
    assert max(moved) <= 1.0
    assert max(moved) > 0.9


WEIGHTS = {"n": TRAINING_ROWS, "uniform": dict.fromkeys(SITES, 1)}


@pytest.mark.parametrize("lost", [(), (ME,)], ids=["all answer", "one is lost"])
@pytest.mark.parametrize(
    ("unit", "weights", "mode"),
    [("record", "n", "masks"), ("record", "uniform", "masks"), ("site", "n", "masks"), ("record", "n", "rlwe")],
)
def test_the_aggregate_carries_the_noise_that_is_claimed(
    unit: str, weights: str, mode: str, lost: tuple[str, ...], lab: LabMaker
) -> None:
    plan = plan_for(unit, mode, weights=weights, model=WIDE, reproducible=False)
    quiet, loud = lab(plan, "quiet"), lab(plan, "loud")
    for one in (quiet, loud):
        one.wire.missing = set(lost)
    with silent():
        without = quiet.round()
    with_noise = loud.round()
    assert without is not None
    assert with_noise is not None
    # One unit moves the mean by its share of the weights times the clip norm, over the site's rows where it is a row.
    own = {site: WEIGHTS[weights][site] * C / (TRAINING_ROWS[site] if unit == "record" else 1) for site in SITES}
    claimed = Z * max(own.values()) / sum(WEIGHTS[weights].values())
    # Three shares carry it all: with four there is a third more variance, with the tolerated one lost what is claimed.
    assert has_scale(with_noise - without, claimed * math.sqrt((len(SITES) - len(lost)) / 3))
    secure = loud.prepared.run_plan.secure
    assert secure is not None
    for site in SITES:
        event = charged(loud, site)
        assert (event.shares, event.share_variance) == (3, secure.grids[0].share_variance)


def test_shares_are_drawn_apart(lab: LabMaker) -> None:
    one = lab(plan_for("record", model=WIDE, reproducible=False))
    shares: list[Vector] = []
    encode = NoiseShare.encode

    def watched(self: NoiseShare, vector: Any, context: Any) -> Any:
        out = encode(self, vector, context)
        shares.append((out - vector).astype(np.float64))
        return out

    with patch.object(NoiseShare, "encode", watched):
        for _ in range(2):
            assert one.round() is not None
    deviation = math.sqrt(charged(one, ME).share_variance)
    assert len(shares) == 2 * len(SITES)
    assert all(has_scale(share, deviation) for share in shares)
    found = np.corrcoef(shares) - np.eye(len(shares))
    assert np.abs(found).max() < 5 / math.sqrt(len(shares[0]))


@pytest.mark.parametrize("mode", SECURE)
def test_a_coordinator_that_takes_fewer_answers_for_enough_opens_nothing(mode: str, lab: LabMaker) -> None:
    """Its own rules are bent; the sites' are not."""
    one = lab(plan_for("record", mode, reproducible=False))
    gatherer: Any = one.coordinator._gatherer
    gatherer._secure = replace(gatherer._secure, dropouts=2)
    scheme: Any = getattr(gatherer, "_scheme", None)
    if scheme is not None:
        scheme._fewest = 2
    one.wire.missing = {"Hungary", "Cleveland"}
    if mode != "masks":
        one.wire.missing = set()
        gatherer._keys()
        one.wire.missing = {"Hungary", "Cleveland"}
    found = opened(one)
    assert found.total is None
    assert found.reason
    one.wire.missing = set()
    assert mode == "masks" or opened(one).total is not None
