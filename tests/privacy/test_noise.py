"""Pattern B: the noise really drawn, by its empirical law, against what is claimed for each placement; C: nothing adapts.

Noise = what left minus what would have left without it (every normal draw silenced, same model, full batches). The real draws
come from the operating system here, as they do for patients.
"""

import math
from collections.abc import Callable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel
from scipy import stats
from tests.privacy.lab import FEDSGD, SITES, TRAINING_ROWS, Lab, Vector, noise, plan_of, privacy

import consilia
from consilia.core.errors import BudgetExceeded, PlanError
from consilia.dp.event import Event
from consilia.plan.schema import Plan
from consilia.rounds.result import epsilon_against
from consilia.store.ledger_store import SiteStore

LabMaker = Callable[..., Lab]
WIDE = 'name = "mlp"\nhidden = [150]'  # 2852 coordinates: a scale wrong by a fifth is 15 standard errors off
Z, C = 3.0, 0.5
STEPS, RATE = 4, 0.05
LOCAL = f'batch = "full"\nlocal_steps = {STEPS}\nlearning_rate = {RATE}'
WEIGHTS = {
    "n": TRAINING_ROWS,
    "uniform": dict.fromkeys(SITES, 1),
    "power": {s: n**0.5 for s, n in TRAINING_ROWS.items()},
}


def drawn(make: LabMaker, plan: Plan) -> tuple[dict[str, Vector], Vector]:
    """The noise of one round: in each site's release, and in the aggregate."""
    silent, real = make(plan, "silent"), make(plan, "real")
    with noise(0):
        without = silent.round()
    with_noise = real.round()
    assert without is not None
    assert with_noise is not None
    quiet, loud = silent.releases(1), real.releases(1)
    return {site: loud[site] - quiet[site] for site in SITES}, with_noise - without


def has_scale(sample: Vector, expected: float) -> bool:
    """Normal with this standard deviation, by a test that a factor of 1.2 never passes (checked each time)."""
    fits = bool(stats.kstest(sample / expected, "norm").pvalue > 1e-8 and _variance_p(sample / expected) > 1e-8)
    for wrong in (expected / 1.2, expected * 1.2):
        assert _variance_p(sample / wrong) < 1e-9
    return fits


def _variance_p(standard: Vector) -> float:
    n = len(standard)
    found = float(np.sum(standard**2))
    return 2 * min(float(stats.chi2.cdf(found, n)), float(stats.chi2.sf(found, n)))


def plan_for(unit: str, placement: str, training: str = FEDSGD, weights: str = "n") -> Plan:
    return plan_of(model=WIDE, training=training, protect=privacy(unit, placement, z=Z, clip=C),
                   aggregation=f'weights = "{weights}"', reproducible=False)  # fmt: skip


def of_independent(scales: Mapping[str, float], weights: Mapping[str, float]) -> float:
    return math.sqrt(sum((weights[s] * scales[s]) ** 2 for s in SITES)) / sum(weights.values())


@pytest.mark.parametrize("weights", WEIGHTS)
def test_record_noise_at_the_site(weights: str, lab: LabMaker) -> None:
    releases, aggregate = drawn(lab, plan_for("record", "site", weights=weights))
    scales = {site: Z * C / TRAINING_ROWS[site] for site in SITES}
    assert all(has_scale(releases[site], scales[site]) for site in SITES)
    assert has_scale(aggregate, of_independent(scales, WEIGHTS[weights]))
    assert independent(releases)


def test_record_noise_of_every_local_step(lab: LabMaker) -> None:
    releases, aggregate = drawn(lab, plan_for("record", "site", training=LOCAL))
    # Each step moves by rate x noise; what the noise does to the next gradient is of the order rate^2.
    scales = {site: RATE * math.sqrt(STEPS) * Z * C / TRAINING_ROWS[site] for site in SITES}
    assert all(has_scale(releases[site], scales[site]) for site in SITES)
    assert has_scale(aggregate, of_independent(scales, TRAINING_ROWS))
    assert independent(releases)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_record_noise_at_the_server(weights: str, lab: LabMaker) -> None:
    releases, aggregate = drawn(lab, plan_for("record", "server", weights=weights))
    assert all(not noise_of_site.any() for noise_of_site in releases.values())
    weight = WEIGHTS[weights]
    largest = max(weight[site] * C / TRAINING_ROWS[site] for site in SITES)
    assert has_scale(aggregate, Z * largest / sum(weight.values()))


@pytest.mark.parametrize("weights", WEIGHTS)
def test_site_noise_at_the_site(weights: str, lab: LabMaker) -> None:
    releases, aggregate = drawn(lab, plan_for("site", "site", LOCAL, weights))
    scales = dict.fromkeys(SITES, Z * C)
    assert all(has_scale(releases[site], scales[site]) for site in SITES)
    assert has_scale(aggregate, of_independent(scales, WEIGHTS[weights]))
    assert independent(releases)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_site_noise_at_the_server(weights: str, lab: LabMaker) -> None:
    releases, aggregate = drawn(lab, plan_for("site", "server", LOCAL, weights))
    assert all(not noise_of_site.any() for noise_of_site in releases.values())
    weight = WEIGHTS[weights]
    assert has_scale(aggregate, Z * C * max(weight.values()) / sum(weight.values()))


def independent(releases: Mapping[str, Vector]) -> bool:
    return not any(related(releases[a], releases[b]) for a, b in combinations(SITES, 2))


def related(one: Vector, other: Vector) -> bool:
    return abs(float(np.corrcoef(one, other)[0, 1])) > 6 / math.sqrt(len(one))


def test_one_noise_shared_by_all_sites_would_be_seen(lab: LabMaker) -> None:
    releases, _ = drawn(lab, plan_for("record", "site"))
    shared = releases[SITES[0]]
    assert independent(releases)
    assert not independent({site: shared * (i + 1) for i, site in enumerate(SITES)})


@pytest.mark.parametrize("placement", ["site", "server"])
@pytest.mark.parametrize("unit", ["record", "site"])
def test_the_noise_of_every_round_is_fresh(unit: str, placement: str, lab: LabMaker) -> None:
    plan = plan_of(rounds=2, model=WIDE, protect=privacy(unit, placement, z=Z, clip=C), reproducible=False)
    silent, real = lab(plan, "silent"), lab(plan, "real")
    start = real.prepared.initial
    rounds = []
    for _ in range(2):
        with noise(0):
            without = silent.round(start)
        loud = real.round(start)
        assert without is not None
        assert loud is not None
        rounds.append(loud - without)
    assert not related(rounds[0], rounds[1])


# What CLAIMS and docs/guarantees.md say of each placement: True where a bound is stated.
COLUMNS = ("server", "server+colluding-sites", "other-sites", "world")
STATED = {
    ("record", "site"): (True, True, True, True), ("record", "server"): (False, False, True, True),
    ("site", "site"): (True, True, True, True), ("site", "server"): (False, False, True, True),
    ("none", ""): (False, False, False, False),
}  # fmt: skip


@pytest.mark.parametrize(("unit", "placement"), STATED)
def test_a_bound_is_stated_only_against_whom_it_holds(unit: str, placement: str) -> None:
    plan = plan_of(protect=privacy(unit, placement) if placement else 'unit = "none"', reproducible=False)
    checked = consilia.check(plan)
    for charge in checked.charges.values():
        assert tuple(charge.epsilon[who] is not None for who in COLUMNS) == STATED[unit, placement]
    table = epsilon_against(checked)
    assert tuple(table[who] is not None for who in COLUMNS) == STATED[unit, placement]
    assert checked.against == ("world" if placement == "server" else "server")
    assert checked.epsilon == table[checked.against]


def test_noise_at_the_server_claims_nothing_against_the_server() -> None:
    for unit in ("record", "site"):
        with pytest.raises(PlanError, match=r"privacy\.against"):
            consilia.check(plan_of(protect=privacy(unit, "server", more='against = "server"')))


def test_the_claim_is_that_of_a_release_not_of_the_mean(lab: LabMaker) -> None:
    """Four sites' noises add up in the mean; the claim against the server must not gain by that (SecretFlow's fault)."""
    checked = consilia.check(plan_for("site", "site", LOCAL, "uniform"))
    for charge in checked.charges.values():
        event = charge.round_events[0]
        assert isinstance(event, Event)
        assert event.noise_multiplier == Z
    alone = consilia.account(sampling_rate=1.0, noise_multiplier=Z, steps=1, delta=1e-3)["epsilon"]
    assert checked.epsilon == pytest.approx(alone, rel=1e-6)


@pytest.mark.parametrize("start", [0.01, 100.0])
def test_a_clip_that_adapts_pays_for_its_count(start: float, lab: LabMaker) -> None:
    """Pattern C: the noise follows C_t, and is larger by what the noised count costs; what is charged is z."""
    count_noise = 3.0
    more = f'clipping = "adaptive"\ncount_noise = {count_noise}'
    protect = privacy("record", "site", z=Z, more=more).replace("clip_norm = 1.0", f"clip_norm = {start}")
    found, _ = drawn(lab, plan_of(training=FEDSGD, protect=protect, model=WIDE))
    on_sum = (Z**-2 - (2 * count_noise) ** -2) ** -0.5
    for site, sample in found.items():
        assert has_scale(sample, on_sum * start / TRAINING_ROWS[site])
        assert _variance_p(sample / (Z * start / TRAINING_ROWS[site])) < 1e-9  # as if the count were free
    checked = lab(plan_of(training=FEDSGD, protect=protect, model=WIDE)).prepared.run_plan
    assert {
        event.noise_multiplier
        for charge in checked.charges.values()
        for event in charge.round_events
        if isinstance(event, Event)
    } == {Z}


def test_every_key_that_bounds_a_contribution_is_known_here() -> None:
    """Whoever adds one that feeds back adds its acceptance test to this file."""
    assert {key for key in keys(Plan) if "clip" in key} == {
        "privacy.clip_norm", "privacy.control_clip_norm", "privacy.clipping", "privacy.clip_learning_rate",
    }  # fmt: skip
    with pytest.raises(PlanError, match=r'privacy\.noise = "site"'):
        consilia.check(plan_of(protect=privacy("record", "server", more='clipping = "adaptive"')))
    with pytest.raises(PlanError):
        plan_of(protect=privacy("site", "server").replace("clip_norm = 1.0", 'clip_norm = "adaptive"'))


def keys(section: type[BaseModel], prefix: str = "") -> set[str]:
    found = set()
    for name, field in section.model_fields.items():
        kind: Any = field.annotation
        inner = isinstance(kind, type) and issubclass(kind, BaseModel)
        found |= keys(kind, f"{prefix}{name}.") if inner else {prefix + name}
    return found


def test_the_reproducible_mode_claims_nothing_and_says_so(lab: LabMaker) -> None:
    plan = plan_of(rounds=2, protect=privacy("record", "site", z=5.0), evaluation='metrics = "public"')
    one = lab(plan)
    one.train()
    checked = one.prepared.run_plan
    assert checked.epsilon is None
    assert set(epsilon_against(checked).values()) == {None}
    assert any("Reproducible mode" in warning and "no epsilon" in warning for warning in checked.warnings)
    assert {record["epsilon_spent"] for record in one.journal.records()} == {None}
    # The ledger does not become a way to look at rows for nothing: what anyone can recompute is booked as unbounded.
    for site in SITES:
        with SiteStore.open(one.home / "sites" / f"{site}.sqlite", site) as store:
            assert [epsilon for epsilon, _ in store.spent("heart").values()] == [math.inf]
            assert sum(count for _, count in store.charged(one.run_name)) == 2


def test_a_ledger_with_a_limit_refuses_a_run_whose_noise_anyone_can_recompute(place: Path) -> None:
    held = plan_of(rounds=2, protect=privacy("record", "site", z=5.0), ledger="max_epsilon = 1000", reproducible=False)
    consilia.run(held, out=place / "held")
    open_ended = plan_of(rounds=2, protect=privacy("record", "site", z=5.0))
    with pytest.raises(BudgetExceeded, match=r"at most 1000 over all runs; got run '.*', which claims no bound"):
        consilia.run(open_ended, out=place / "run")
    assert not (place / "run" / "result.json").exists()


def test_public_numbers_do_not_follow_what_a_site_holds() -> None:
    """With registered counts, weights, divisors, caps and noise are the same whatever number of rows a site really has."""
    text = "counts = { " + ", ".join(f'"{site}" = 400' for site in SITES) + " }"
    training = 'batch = "poisson"\nsampling_rate = 0.1\nlocal_epochs = 1'
    for weights in ("n", "power", "uniform"):
        plans = [
            plan_of(rounds=3, sites=text, training=f"{training}", protect=privacy("record", "site", z=2.0),
                    aggregation=f'weights = "{weights}"').model_copy(update={"data": data})
            for data in _halved()
        ]  # fmt: skip
        one, two = (consilia.check(plan) for plan in plans)
        assert one.sites == two.sites
        assert one.charges == two.charges
        assert (one.noise_multiplier, one.epsilon, one.schedule) == (two.noise_multiplier, two.epsilon, two.schedule)
        assert {terms.count for terms in one.sites} == {400}


def _halved() -> tuple[Any, Any]:
    whole = plan_of(protect='unit = "none"').data
    return whole, whole.model_copy(update={"test_fraction": 0.6})
