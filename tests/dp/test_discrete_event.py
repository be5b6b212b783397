"""The event of integer noise wherever events go: digests, ledger, bounds, calibration, search."""

import math
from dataclasses import replace

import pytest

from consilia.core.errors import BudgetExceeded, PlanError
from consilia.core.spec import Adjacency
from consilia.dp.accountant import Composition, bound, profile, quick_bound, rdp_epsilon
from consilia.dp.calibrate import noise_multiplier
from consilia.dp.event import AnyEvent, DiscreteGaussianEvent, EpsilonDeltaEvent, Event, event_from_json
from consilia.dp.ledger import Allotment, admit_charge
from consilia.dp.selection import price, rough_price
from consilia.dp.selection_trials import Fixed, NegativeBinomial

EVENT = DiscreteGaussianEvent(10**17 + 1, 4, 2.5e8, 1000, 0.1)
DELTA = 1e-5
CHANGED = [
    {"share_variance": 10**17 + 2},
    {"shares": 5},
    {"l2": 2.4e8},
    {"dim": 999},
    {"sampling_rate": 0.09},
    {"steps": 0},
    {"adjacency": Adjacency.ZERO_OUT},
]


@pytest.mark.parametrize("change", CHANGED, ids=lambda change: next(iter(change)))
def test_every_field_is_written_read_back_and_named(change: dict[str, object]) -> None:
    other = replace(EVENT, **change)  # type: ignore[arg-type]
    assert event_from_json(other.to_json()) == other
    assert event_from_json(EVENT.to_json()) == EVENT
    assert other.digest != EVENT.digest


def test_covering_is_one_sided() -> None:
    assert EVENT.covers(EVENT)
    less = [
        {"share_variance": 10**17},
        {"shares": 3},
        {"l2": 2.6e8},
        {"dim": 1001},
        {"sampling_rate": 0.2},
        {"steps": 2},
    ]
    for change in less:
        weaker = replace(EVENT, **change)  # type: ignore[arg-type]
        assert weaker.covers(EVENT)
        assert not EVENT.covers(weaker)
        assert rdp_epsilon([(weaker, 1)], DELTA) >= rdp_epsilon([(EVENT, 1)], DELTA)
    assert not EVENT.covers(replace(EVENT, adjacency=Adjacency.ZERO_OUT))


@pytest.mark.parametrize("value", [{"mechanism": "discrete-gaussian"}, {**EVENT.to_json(), "l2": None}])
def test_half_an_event_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not a privacy event"):
        event_from_json(value)  # type: ignore[arg-type]


def test_a_ledger_admits_as_many_as_were_allotted() -> None:
    allotment = Allotment("r", "p", ((EVENT, 2),), 1.0, DELTA, Adjacency.ADD_REMOVE, "world")
    again = Allotment.from_json(allotment.to_json())
    assert again == allotment
    admit_charge(again, {EVENT.digest: 1}, EVENT)
    with pytest.raises(BudgetExceeded, match="4 shares of integer noise"):
        admit_charge(again, {EVENT.digest: 2}, EVENT)
    with pytest.raises(BudgetExceeded):
        admit_charge(again, {}, replace(EVENT, shares=3))


def test_bounds_are_the_gaussians_on_a_fine_grid_and_renyi_dps_on_a_coarse_one() -> None:
    same: Composition = [(Event(EVENT.ratio, 0.1), 50)]
    found = bound([(EVENT, 50)], DELTA)
    assert found.rdp == pytest.approx(rdp_epsilon(same, DELTA), rel=1e-9)
    assert bound(same, DELTA).epsilon <= found.epsilon == found.pld < found.rdp
    assert quick_bound([(EVENT, 50)], DELTA).epsilon == pytest.approx(found.epsilon, rel=1e-2)
    assert profile([(EVENT, 50)], DELTA)(1e-3) == pytest.approx(bound([(EVENT, 50)], 1e-3).epsilon, rel=2e-3)
    coarse = DiscreteGaussianEvent(4, 4, 1.0, 10**6)
    found = bound([(coarse, 1)], DELTA)
    assert (found.pld, found.epsilon) == (math.inf, found.rdp)
    assert found.accountant.startswith("RDP")


def test_compositions_with_other_events() -> None:
    plain, pure, whole = Event(20.0), EpsilonDeltaEvent(0.1), EpsilonDeltaEvent(0.2, 1e-6)
    alone = bound([(EVENT, 50)], DELTA).epsilon
    mixed: Composition = [(EVENT, 50), (plain, 3)]
    gaussian: Composition = [(Event(EVENT.ratio, 0.1), 50), (plain, 3)]
    assert bound(mixed, DELTA).rdp == pytest.approx(rdp_epsilon(gaussian, DELTA), rel=1e-9)
    assert bound(mixed, DELTA).epsilon == pytest.approx(bound(gaussian, DELTA).epsilon, rel=1e-3)
    sampled: Composition = [(EVENT, 50), (Event(2.0, 0.1), 3)]
    for each in (mixed, sampled):
        assert profile(each, DELTA)(DELTA) == pytest.approx(bound(each, DELTA).epsilon, rel=1e-6)
        assert bound(each, DELTA).epsilon > alone
    assert alone < bound([(EVENT, 50), (pure, 1)], DELTA).epsilon <= alone + 0.1
    added = bound([(EVENT, 50), (whole, 1)], DELTA).epsilon
    assert added == pytest.approx(0.2 + bound([(EVENT, 50)], DELTA - 1e-6).epsilon)
    assert rdp_epsilon([(EVENT, 50), (whole, 1)], DELTA) > added
    assert bound([(EVENT, 1), (EpsilonDeltaEvent(0.1, DELTA), 1)], DELTA).epsilon == math.inf
    assert bound([(EVENT, 0)], DELTA).epsilon == 0
    assert bound([(replace(EVENT, l2=1e13), 1), (plain, 1)], DELTA).epsilon == math.inf


def test_faults_are_named() -> None:
    with pytest.raises(PlanError) as caught:
        bound([(DiscreteGaussianEvent(0, 1, 1.0, 1, 2.0, -1), 1), (DiscreteGaussianEvent(1, 1, math.nan, 1), 1)], DELTA)
    assert len(caught.value.problems) == 4
    with pytest.raises(PlanError, match="a delta between 0 and 1"):
        bound([(EVENT, 1)], 0.0)
    with pytest.raises(PlanError, match="add-remove adjacency where records are sampled"):
        bound([(replace(EVENT, adjacency=Adjacency.REPLACE_ONE), 1)], DELTA)


def made(z: float, moved: float = 1e4, rate: float = 0.1) -> AnyEvent:
    return DiscreteGaussianEvent(math.ceil((z * moved) ** 2 / 8), 8, moved, 100, rate)


@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_calibration_finds_the_multiplier_of_the_gaussian(rate: float) -> None:
    z = noise_multiplier(epsilon=1.0, delta=DELTA, make=lambda z: [(made(z, rate=rate), 100)])
    assert bound([(made(z, rate=rate), 100)], DELTA).epsilon <= 1.0
    assert bound([(made(z * (1 - 2e-4), rate=rate), 100)], DELTA).epsilon > 1.0
    assert bound([(Event(z, rate), 100)], DELTA).epsilon == pytest.approx(1.0, rel=1e-3)


def test_calibration_on_a_coarse_grid_still_errs_on_the_safe_side() -> None:
    z = noise_multiplier(epsilon=2.0, delta=DELTA, make=lambda z: [(made(z, moved=2.0), 10)])
    assert bound([(made(z, moved=2.0), 10)], DELTA).epsilon <= 2.0


def test_a_scaled_event_has_at_most_the_noise_of_a_plan_at_that_multiplier() -> None:
    for z, factor in ((1.0, 1.5), (0.7, 0.3), (2.0, 1e3), (1.0, 1e-9)):
        base, at = made(z), made(z * factor)
        assert isinstance(base, DiscreteGaussianEvent)
        assert isinstance(at, DiscreteGaussianEvent)
        scaled = base.scaled(factor)
        assert scaled.covers(at)
        assert scaled.share_variance >= at.share_variance * (1 - 1e-6) - factor**2 - 2


def test_searches_are_priced() -> None:
    base: Composition = [(made(4.0), 100)]
    one = bound(base, DELTA).epsilon
    for law in (Fixed(3), NegativeBinomial(1.0, 0.2)):
        found = price([base], law, DELTA).epsilon
        assert one < found <= rough_price([base], law, DELTA) * (1 + 1e-9)
