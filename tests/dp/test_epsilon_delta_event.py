"""Releases with an (epsilon, delta) of their own: how they are written, added up, and booked."""

import math

import pytest

from consilia.core.errors import BudgetExceeded, PlanError
from consilia.core.spec import Adjacency
from consilia.dp.accountant import bound, rdp_epsilon
from consilia.dp.event import EpsilonDeltaEvent, Event, event_from_json
from consilia.dp.ledger import Allotment, admit, admit_charge
from consilia.dp.rdp import ORDERS, rdp_vector


def test_events_of_both_kinds_are_read_back() -> None:
    for event in (EpsilonDeltaEvent(0.25), EpsilonDeltaEvent(1.0, 1e-6, Adjacency.REPLACE_ONE), Event(1.1, 0.1, 3)):
        assert event_from_json(event.to_json()) == event
    assert EpsilonDeltaEvent(1).digest == EpsilonDeltaEvent(1.0).digest != Event(1.0).digest
    for broken in (
        {"mechanism": "epsilon-delta"},
        {"mechanism": "laplace"},
        {"mechanism": "epsilon-delta", "epsilon": None},
    ):
        with pytest.raises(ValueError, match=r"mechanism|event"):
            event_from_json(broken)  # type: ignore[arg-type]


def test_one_pure_release_costs_its_epsilon_at_any_delta() -> None:
    for delta in (0.0, 1e-12, 1e-5):
        assert bound([(EpsilonDeltaEvent(0.7), 1)], delta).epsilon == 0.7
    with pytest.raises(PlanError, match="a delta between 0 and 1"):
        bound([(EpsilonDeltaEvent(0.7), 1), (Event(1.0), 1)], 0.0)
    with pytest.raises(PlanError, match="an epsilon and a count"):
        bound([(EpsilonDeltaEvent(-0.7), 1)], 0.0)


def test_pure_releases_add_up_or_less() -> None:
    assert bound([(EpsilonDeltaEvent(0.1), 2), (EpsilonDeltaEvent(0.3), 1)], 0.0).epsilon == pytest.approx(0.5)
    many = bound([(EpsilonDeltaEvent(0.1), 1000)], 1e-5)
    assert many.epsilon < 30 < 100  # concentrated: 5 + sqrt(2 x 10 x log(1e5)) = 20.2 and a little
    assert many.epsilon > 5
    assert rdp_epsilon([(EpsilonDeltaEvent(0.1), 1000)], 1e-5) == many.rdp


def test_deltas_are_taken_off_before_the_others_are_asked() -> None:
    gaussian, whole = Event(2.0), EpsilonDeltaEvent(0.4, 4e-6)
    assert bound([(whole, 1)], 1e-5).epsilon == 0.4
    assert bound([(whole, 2)], 1e-5).epsilon == 0.8
    assert bound([(whole, 3)], 1e-5).epsilon == math.inf
    both = bound([(gaussian, 1), (whole, 1)], 1e-5)
    assert both.epsilon == pytest.approx(0.4 + bound([(gaussian, 1)], 6e-6).epsilon)
    assert rdp_epsilon([(gaussian, 1), (whole, 1)], 1e-5) >= both.epsilon
    assert bound([(gaussian, 1), (EpsilonDeltaEvent(0.4, 1e-5), 1)], 1e-5).epsilon == math.inf
    with pytest.raises(PlanError, match="a delta between 0 and 1"):
        bound([(whole, 1)], 0.0)
    assert math.isinf(rdp_vector(whole).min())


def test_pure_and_gaussian_releases_add_up() -> None:
    gaussian = bound([(Event(2.0), 1)], 1e-5).epsilon
    both = bound([(Event(2.0), 1), (EpsilonDeltaEvent(0.4), 1)], 1e-5)
    assert gaussian < both.epsilon <= gaussian + 0.4
    with pytest.raises(PlanError, match="one adjacency"):
        bound([(Event(2.0), 1), (EpsilonDeltaEvent(0.4, adjacency=Adjacency.REPLACE_ONE), 1)], 1e-5)


def test_the_renyi_bound_lies_above_the_worst_pure_mechanism() -> None:
    # Randomised response has the largest divergence among epsilon-private mechanisms, at every order.
    for epsilon in (0.1, 1.0, 3.0):
        p = math.exp(epsilon) / (1 + math.exp(epsilon))
        for order, given in zip(ORDERS[:40], rdp_vector(EpsilonDeltaEvent(epsilon)), strict=False):
            exact = math.log(p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)) / (order - 1)
            assert exact <= given


def test_a_ledger_books_them() -> None:
    shares = (EpsilonDeltaEvent(0.25), EpsilonDeltaEvent(0.75))
    allotment = Allotment("r", "ward", tuple((e, 1) for e in shares), 1.0, 0.0, Adjacency.ADD_REMOVE, "server")
    admit([], allotment, 1.0)
    assert Allotment.from_json(allotment.to_json()) == allotment
    admit_charge(allotment, {}, shares[0])
    with pytest.raises(BudgetExceeded, match=r"charge 2 of 1 allowed for epsilon 0\.25 without a delta"):
        admit_charge(allotment, {shares[0].digest: 1}, shares[0])
    with pytest.raises(BudgetExceeded, match="1 already allotted"):
        admit([allotment], Allotment("s", "ward", ((shares[0], 1),), 0.25, 0.0, Adjacency.ADD_REMOVE, "server"), 1.0)
