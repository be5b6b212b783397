"""Pattern F: every epsilon shown is an upper bound, of exactly what the ledgers on disk hold.

Beside the product's accountant stand three that share no code with it: the analytic Gaussian by its definition, Renyi DP by its
definition (numerical integration), and the library's optimistic privacy loss distribution, which is below the truth.
"""

import math
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import integrate, optimize, stats
from tests.privacy.lab import FEDSGD, SITES, Lab, plan_of, privacy

from consilia.core.spec import Adjacency
from consilia.dp import accountant
from consilia.dp.event import Event
from consilia.plan.schema import Plan
from consilia.rounds.result import epsilon_against
from consilia.store.ledger_store import SiteStore

LabMaker = Callable[..., Lab]
DELTA = 1e-3
Composition = tuple[tuple[Event, int], ...]


def analytic(composition: Composition, delta: float = DELTA) -> float:
    """The exact epsilon of unsampled Gaussian releases (Balle and Wang 2018): root of delta(epsilon)."""
    mu = math.sqrt(sum(n * e.steps / e.noise_multiplier**2 for e, n in composition))

    def excess(epsilon: float) -> float:
        a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        return float(stats.norm.cdf(a) - math.exp(epsilon + stats.norm.logcdf(b))) - delta

    return float(optimize.brentq(excess, 0.0, 200.0)) if excess(0.0) > 0 else 0.0


@cache
def renyi(z: float, q: float, order: int) -> float:
    """Renyi divergence of one step between (1-q) N(0,z^2) + q N(1,z^2) and N(0,z^2), by integration."""

    def log_ratio(x: float) -> float:
        return float(np.logaddexp(math.log1p(-q) if q < 1 else -math.inf, math.log(q) + (2 * x - 1) / (2 * z * z)))

    def integrand(x: float) -> float:
        return math.exp(order * log_ratio(x) + float(stats.norm.logpdf(x, scale=z)))

    value, _ = integrate.quad(integrand, -12 * z, order + 12 * z, limit=400, epsabs=0)
    return math.log(value) / (order - 1)


def by_renyi(composition: Composition, delta: float = DELTA) -> float:
    """Mironov's conversion at a few orders: valid, and looser than the product's."""
    orders = (2, 3, 4, 6, 8, 12, 16, 24, 32)
    totals = {
        a: sum(n * e.steps * renyi(e.noise_multiplier, e.sampling_rate, a) for e, n in composition) for a in orders
    }
    return min(total + math.log(1 / delta) / (a - 1) for a, total in totals.items())


def from_below(composition: Composition, delta: float = DELTA) -> float:
    """An optimistic privacy loss distribution: never above the true epsilon."""
    from dp_accounting.pld import privacy_loss_distribution as plds

    composed: Any = None
    for event, times in composition:
        one = plds.from_gaussian_mechanism(
            event.noise_multiplier, sampling_prob=event.sampling_rate, pessimistic_estimate=False,
            value_discretization_interval=1e-3, use_connect_dots=False,
        ).self_compose(times * event.steps)  # fmt: skip
        composed = one if composed is None else composed.compose(one)
    return float(composed.get_epsilon_for_delta(delta))


RUNS = {
    "full": plan_of(rounds=6, protect=privacy("record", "site", z=9.0), reproducible=False),
    "full, charged scores": plan_of(rounds=6, protect=privacy("record", "site", z=9.0), reproducible=False,
                                    evaluation='metrics = "charged"\nnoise_multiplier = 15.0\nevery = 2'),
    "poisson": plan_of(rounds=6, training='batch = "poisson"\nsampling_rate = 0.2\nlocal_steps = 4',
                       protect=privacy("record", "site", z=2.0), reproducible=False),
    "poisson, charged scores": plan_of(
        rounds=6, training='batch = "poisson"\nsampling_rate = 0.2\nlocal_steps = 4', reproducible=False,
        protect=privacy("record", "site", z=2.0), evaluation='metrics = "charged"\nnoise_multiplier = 15.0'),
    "fixed": plan_of(rounds=6, training='batch = "fixed"\nbatch_size = 16\nlocal_epochs = 2',
                     protect=privacy("record", "site", z=15.0), reproducible=False),
    "some sites a round": plan_of(rounds=6, protect=privacy("record", "site", z=9.0), reproducible=False,
                                  aggregation='selection = "count"\ncount = 3'),
    "record at the server": plan_of(rounds=6, training=FEDSGD, protect=privacy("record", "server", z=9.0),
                                    aggregation='weights = "uniform"', reproducible=False),
    "site at the server": plan_of(rounds=6, training='batch = "full"\nlocal_steps = 2',
                                  protect=privacy("site", "server", z=9.0), reproducible=False),
    "target": plan_of(rounds=6, training='batch = "poisson"\nsampling_rate = 0.2\nlocal_steps = 4', reproducible=False,
                      protect=privacy("record", "site").replace("noise_multiplier = 1.0", "epsilon = 2.0")),
}  # fmt: skip


def on_disk(one: Lab, site: str) -> Composition:
    with SiteStore.open(one.home / "sites" / f"{site}.sqlite", site) as store:
        store.verify("heart")
        events = Counter(
            Event.from_json(entry.body["event"])  # type: ignore[arg-type]
            for entry in store.entries("heart")
            if str(entry.kind) == "reserve"
        )
    return tuple(sorted(events.items(), key=lambda item: item[0].digest))


@pytest.mark.parametrize("name", RUNS)
def test_the_epsilon_shown_covers_exactly_what_the_ledgers_hold(name: str, lab: LabMaker) -> None:
    plan: Plan = RUNS[name]
    one = lab(plan)
    one.train()
    checked = one.prepared.run_plan
    assert checked.epsilon is not None
    found = []
    for site in SITES:
        composition = on_disk(one, site)
        if not composition:
            continue
        stated = checked.charges[site].epsilon[checked.against]
        assert stated is not None
        delta = DELTA - checked.charges[site].extra_delta
        # Computed again from the disk, by the product's own accountant: the same number.
        again = accountant.bound(composition, delta).epsilon
        assert again == pytest.approx(stated, rel=1e-9)
        _between(composition, stated, delta)
        found.append(stated)
        with SiteStore.open(one.home / "sites" / f"{site}.sqlite", site) as store:
            ((relation, (epsilon, spent_delta)),) = store.spent("heart").items()
            assert relation == (checked.adjacency, checked.against)
            assert (round(epsilon, 9), spent_delta) == (round(stated, 9), DELTA)
    assert checked.epsilon == max(found)
    assert epsilon_against(checked)[checked.against] == checked.epsilon
    if plan.privacy.epsilon is not None:
        assert checked.epsilon <= plan.privacy.epsilon
        assert checked.epsilon > 0.995 * plan.privacy.epsilon  # no noise beyond what the target asks for


def _between(composition: Composition, stated: float, delta: float) -> None:
    """Below nothing that is true, above nothing that is proved."""
    truth = from_below(composition, delta)
    assert truth <= stated
    assert stated <= by_renyi(composition, delta) * (1 + 1e-6)
    if all(event.sampling_rate == 1 for event, _ in composition):
        exact = analytic(composition, delta)
        assert exact * (1 - 1e-9) <= stated <= exact * 1.001
    else:
        assert stated <= truth * 1.01  # the two sides of the truth are within a hundredth


@pytest.mark.parametrize(
    "name", ["full", "full, charged scores", "poisson", "fixed", "some sites a round", "record at the server"]
)
def test_the_odometer_is_never_below_the_truth_for_what_was_released_so_far(name: str, lab: LabMaker) -> None:
    plan: Plan = RUNS[name]
    one = lab(plan)
    one.train()
    checked = one.prepared.run_plan
    shown = [record["epsilon_spent"] for record in one.journal.records()]
    assert all(isinstance(value, float) for value in shown)
    evaluations = 0
    turns = dict.fromkeys(SITES, 0)
    for number, value in enumerate(shown, 1):
        for site in checked.schedule[number - 1]:
            turns[site] += 1
        evaluations += plan.evaluation.metrics == "charged" and number % plan.evaluation.every == 0
        truth = 0.0
        for site in SITES:
            charge = checked.charges[site]
            event = charge.round_events[0]
            assert isinstance(event, Event)
            pairs: Composition = ((event, turns[site]),) if turns[site] else ()
            if charge.evaluation_event is not None and evaluations:
                pairs = (*pairs, (charge.evaluation_event, evaluations))
            if pairs:
                sampled = any(event.sampling_rate < 1 for event, _ in pairs)
                truth = max(truth, from_below(pairs) if sampled else analytic(pairs))
        assert float(value) >= truth * (1 - 1e-9), number
    assert shown == sorted(shown)
    assert checked.epsilon is not None
    assert float(shown[-1]) <= checked.epsilon


GRID = [
    (z, q, steps) for z in (1.5, 4.0) for q in (0.01, 0.2, 1.0) for steps in (1, 50, 1000) if q * q * steps / z**2 < 60
]


@pytest.mark.parametrize(("z", "q", "steps"), GRID)
def test_independent_accountants_stand_on_both_sides(z: float, q: float, steps: int) -> None:
    composition: Composition = ((Event(z, q, steps), 1),)
    found = accountant.bound(composition, 1e-5)
    assert found.epsilon == min(found.rdp, found.pld)
    assert found.epsilon <= by_renyi(composition, 1e-5) * (1 + 1e-6)
    if q == 1:
        exact = analytic(composition, 1e-5)
        assert exact * (1 - 1e-9) <= found.epsilon <= exact * 1.001
        assert found.rdp >= exact * (1 - 1e-9)
    elif found.epsilon < 50:
        truth = from_below(composition, 1e-5)
        assert truth <= found.epsilon
        assert truth <= found.rdp


def test_a_multiplier_turned_upside_down_would_be_seen() -> None:
    """The fault of pattern F: a scale passed as its inverse. A composition with 1/z is far from every other accountant."""
    wrong: Composition = ((Event(1 / 4.0, 0.2, 50), 1),)
    right: Composition = ((Event(4.0, 0.2, 50), 1),)
    assert accountant.bound(wrong, 1e-5).epsilon > 10 * by_renyi(right, 1e-5)


def test_replacing_a_row_costs_what_half_the_noise_costs(lab: LabMaker) -> None:
    checked = lab(RUNS["fixed"]).prepared.run_plan
    for charge in checked.charges.values():
        event = charge.round_events[0]
        assert isinstance(event, Event)
        assert (event.adjacency, event.noise_multiplier) == (Adjacency.REPLACE_ONE, 7.5)
