"""Pattern D: amplification is claimed only where the batches are a secret Poisson sample, and there they are one.

The rows are those that the real learner asks for in real rounds.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from tests.privacy.lab import SITES, TRAINING_ROWS, Lab, plan_of, privacy

import consilia
from consilia.core.spec import Adjacency
from consilia.dp import accountant
from consilia.dp.event import Event
from consilia.learning import local
from consilia.learning.cohort import task as task_module
from consilia.learning.persample import linear
from consilia.plan.run_plan import RunPlan

LabMaker = Callable[..., Lab]
Batches = list[NDArray[np.int64]]
RATE, STEPS, ROUNDS = 0.1, 20, 12
POISSON = f'batch = "poisson"\nsampling_rate = {RATE}\nlocal_steps = {STEPS}\nlearning_rate = 0.01'


@contextmanager
def watched() -> Iterator[tuple[dict[int, Batches], list[int]]]:
    """Collect every batch that training asks for, by number of rows at the site, and how many rows reach each clipped sum."""
    batches: dict[int, Batches] = {}
    clipped: list[int] = []
    train, clipped_sum = local.train, linear.LinearChain.clipped_sum

    def spied(model: Any, start: Any, features: Any, labels: Any, work: Any, *, next_batch: Any, **more: Any) -> Any:
        def asked() -> NDArray[np.int64]:
            rows: NDArray[np.int64] = next_batch()
            batches.setdefault(len(labels), []).append(rows)
            return rows

        return train(model, start, features, labels, work, next_batch=asked, **more)

    def counted(self: Any, features: Any, labels: Any, *more: Any) -> Any:
        clipped.append(len(labels))
        return clipped_sum(self, features, labels, *more)

    with patch.object(task_module, "train", spied), patch.object(linear.LinearChain, "clipped_sum", counted):
        yield batches, clipped


def sampled(lab: LabMaker, training: str, rounds: int = ROUNDS, **more: Any) -> dict[str, Batches]:
    with watched() as (batches, clipped):
        lab(plan_of(rounds=rounds, training=training, protect=privacy("record", "site", z=3.0), **more)).train()
    # What is asked for is what is clipped and added.
    assert sorted(filter(None, clipped)) == sorted(len(b) for found in batches.values() for b in found if len(b))
    return {site: batches[TRAINING_ROWS[site]] for site in SITES}


def sizes_p(batches: Batches, count: int, rate: float) -> float:
    """p of "sizes are Binomial(count, rate)": chi-square over cells of at least 5 expected."""
    law = stats.binom(count, rate)
    sizes = np.array([len(batch) for batch in batches])
    edges = [-1.0]
    while len(batches) * law.sf(edges[-1]) >= 10:
        high = edges[-1] + 1
        while len(batches) * (law.cdf(high) - law.cdf(edges[-1])) < 5:
            high += 1
        edges.append(high)
    edges[-1] = count
    expected = len(batches) * np.diff(law.cdf(edges))
    seen = np.histogram(sizes, bins=np.array(edges) + 0.5)[0]
    assert len(expected) > 3
    return float(stats.chisquare(seen, expected * len(batches) / expected.sum()).pvalue)


def rows_p(batches: Batches, count: int, rate: float) -> float:
    """p of "every row joins each batch with this rate, on its own": how unequal the rows' totals are, two-sided."""
    totals = np.bincount(np.concatenate(batches), minlength=count)
    spread = float(np.sum((totals - len(batches) * rate) ** 2) / (len(batches) * rate * (1 - rate)))
    return 2 * min(float(stats.chi2.cdf(spread, count)), float(stats.chi2.sf(spread, count)))


def pairs_p(batches: Batches, count: int, rate: float) -> float:
    """p of "a batch says nothing about the next": rows common to neighbouring batches, two-sided."""
    shared = sum(len(np.intersect1d(a, b)) for a, b in pairwise(batches))
    trials = count * (len(batches) - 1)
    law = stats.norm(trials * rate**2, np.sqrt(trials * rate**2 * (1 - rate**2)))
    return 2 * min(float(law.cdf(shared)), float(law.sf(shared)))


def shuffled(count: int, rate: float, number: int, seed: int = 1) -> Batches:
    """What peers do and call Poisson: a permutation cut into batches of rate x rows, again and again."""
    rng, size = np.random.default_rng(seed), round(rate * count)
    found: Batches = []
    while len(found) < number:
        order = rng.permutation(count)
        found += [order[start : start + size] for start in range(0, count - size + 1, size)]
    return found[:number]


@pytest.mark.parametrize(("unit", "placement"), [("record", "site"), ("site", "site")])
def test_poisson_batches_are_poisson_samples(unit: str, placement: str, lab: LabMaker) -> None:
    with watched() as (batches, _):
        lab(plan_of(rounds=ROUNDS, training=POISSON, protect=privacy(unit, placement, z=3.0))).train()
    for count in TRAINING_ROWS.values():
        found = batches[count]
        assert len(found) == ROUNDS * STEPS
        assert all(len(set(batch)) == len(batch) for batch in map(np.ndarray.tolist, found))
        for p_value in (sizes_p, rows_p, pairs_p):
            assert p_value(found, count, RATE) > 1e-5, p_value.__name__


@pytest.mark.parametrize("count", [30, 85, 199])
def test_the_same_tests_reject_a_shuffle_and_a_wrong_rate(count: int) -> None:
    number = ROUNDS * STEPS
    cut = shuffled(count, RATE, number)
    assert sizes_p(cut, count, RATE) < 1e-9
    assert rows_p(cut, count, RATE) < 1e-9
    assert pairs_p(cut, count, RATE) < 1e-4
    rng = np.random.default_rng(2)
    other = [np.flatnonzero(rng.random(count) < RATE * 1.4) for _ in range(number)]
    assert rows_p(other, count, RATE) < 1e-6
    # One batch drawn well and used again has the right sizes; only the pairs give it away.
    twice = [batch for _ in range(number // 2) for batch in [np.flatnonzero(rng.random(count) < RATE)] * 2]
    assert pairs_p(twice, count, RATE) < 1e-6


def test_a_poisson_step_is_amplified_by_its_own_rate_and_nothing_else() -> None:
    protect = privacy("record", "site", z=3.0)
    plan = plan_of(rounds=10, training=POISSON, protect=protect, aggregation='selection = "count"\ncount = 2')
    for charge in consilia.check(plan).charges.values():
        event = charge.round_events[0]
        assert isinstance(event, Event)
        # Which two of four sites take part is public: their rate of a half is not in the event.
        assert (event.sampling_rate, event.steps, event.noise_multiplier) == (RATE, STEPS, 3.0)


SELECTIONS = ('selection = "all"', 'selection = "poisson"\nfraction = 0.5', 'selection = "count"\ncount = 1')
UNAMPLIFIED = {
    "full": 'batch = "full"\nlocal_steps = 3',
    "fixed, epochs": 'batch = "fixed"\nbatch_size = 16\nlocal_epochs = 2',
    "fixed, steps": 'batch = "fixed"\nbatch_size = 16\nlocal_steps = 3',
    "fedsgd full": 'algorithm = "fedsgd"\nbatch = "full"',
    "fedsgd fixed": 'algorithm = "fedsgd"\nbatch = "fixed"\nbatch_size = 16',
}


@pytest.mark.parametrize("training", UNAMPLIFIED.values(), ids=UNAMPLIFIED)
@pytest.mark.parametrize(
    "selection", ['selection = "all"', 'selection = "poisson"\nfraction = 0.5', 'selection = "count"\ncount = 1']
)
def test_other_batches_and_client_sampling_amplify_nothing(training: str, selection: str) -> None:
    plan = plan_of(rounds=10, training=training, protect=privacy("record", "site", z=30.0), aggregation=selection)
    for charge in consilia.check(plan).charges.values():
        event = charge.round_events[0]
        assert isinstance(event, Event)
        assert event.sampling_rate == 1.0
        if "fixed" in training:
            assert (event.adjacency, event.noise_multiplier) == (Adjacency.REPLACE_ONE, 15.0)
        else:
            assert (event.adjacency, event.noise_multiplier) == (Adjacency.ADD_REMOVE, 30.0)


def test_a_site_as_unit_is_never_amplified_by_its_batches() -> None:
    for placement in ("site", "server"):
        plan = plan_of(training=POISSON, protect=privacy("site", placement, z=3.0))
        for charge in consilia.check(plan).charges.values():
            event = charge.round_events[0]
            assert isinstance(event, Event)
            assert (event.sampling_rate, event.steps) == (1.0, 1)


def test_fixed_batches_hold_every_row_once_a_pass(lab: LabMaker) -> None:
    found = sampled(lab, 'batch = "fixed"\nbatch_size = 16\nlocal_epochs = 2')
    for site, count in TRAINING_ROWS.items():
        assert np.bincount(np.concatenate(found[site])).tolist() == [2 * ROUNDS] * count


def test_the_sample_is_secret(lab: LabMaker) -> None:
    """Same plan, same public seed, same rows: other batches. And no public stream gives the batches that were used."""

    def run(folder: str, reproducible: bool) -> dict[str, Batches]:
        return sampled(lambda plan: lab(plan, folder), POISSON, rounds=5, reproducible=reproducible)

    one, two = run("a", False), run("b", False)
    for site, count in TRAINING_ROWS.items():
        assert not alike(one[site], two[site])
        for sample in (one[site], two[site]):
            assert rows_p(sample, count, RATE) > 1e-7
    # The reproducible mode does draw from the public seed: twice the same, which is why it claims nothing.
    three, four = run("c", True), run("d", True)
    for site in SITES:
        assert all(np.array_equal(a, b) for a, b in zip(three[site], four[site], strict=True))
        assert alike(three[site], four[site]) == (site != "Switzerland")  # 30 rows never give a batch of 8
        assert not alike(one[site], three[site])


def alike(one: Batches, other: Batches) -> bool:
    """Whether any step had the same rows; small batches may agree by chance."""
    return any(np.array_equal(np.sort(a), np.sort(b)) for a, b in zip(one, other, strict=True) if len(a) > 7)


def test_the_excess_over_the_cap_is_dropped_without_regard_to_the_rows(lab: LabMaker) -> None:
    with watched() as (batches, _):
        lab(plan_of(rounds=ROUNDS, training=f"{POISSON}\nbatch_cap = 12", protect=privacy("site", "site"))).train()
    found = batches[TRAINING_ROWS["Cleveland"]]  # 19.9 join on average: nearly every batch is cut
    assert max(map(len, found)) == 12
    kept = sum(map(len, found)) / len(found) / TRAINING_ROWS["Cleveland"]
    assert rows_p(found, TRAINING_ROWS["Cleveland"], kept) > 1e-5
    # Dropping what comes last in the table would favour its first rows.
    first = [np.sort(batch)[:8] for batch in found]
    assert rows_p(first, TRAINING_ROWS["Cleveland"], kept * 8 / 12) < 1e-9


def test_cut_batches_are_paid_for() -> None:
    def checked(cap: int) -> RunPlan:
        return consilia.check(plan_of(rounds=4, training=f"{POISSON}\nbatch_cap = {cap}",
                                      protect=privacy("record", "site", z=3.0), reproducible=False))  # fmt: skip

    cut, whole = checked(43), checked(199)
    epsilon = cut.epsilon
    assert epsilon is not None
    for site in SITES:
        # P(Bin(199, 0.1) > 43) x 80 steps x (1 + e^epsilon), for the largest site.
        spent = cut.charges[site].extra_delta
        assert spent >= (1 + math.exp(epsilon)) * 4 * STEPS * float(stats.binom.sf(43, 199, RATE)) * (1 - 1e-9)
        assert whole.charges[site].extra_delta == 0
        charge = cut.charges[site]
        assert charge.round_events[0] is not None
        # What the cuts cost is taken off delta before epsilon is asked for; the difference shows.
        composition = ((charge.round_events[0], 4),)
        assert charge.epsilon["server"] == accountant.bound(composition, 1e-3 - spent).epsilon
        assert accountant.bound(composition, 1e-3).epsilon < epsilon * (1 - 1e-4)
