import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilia.core.errors import BudgetExceeded, StoreError
from consilia.core.spec import Adjacency
from consilia.dp.event import Event
from consilia.dp.ledger import Allotment, Relation, admit, admit_charge, spent

TRAIN, EVALUATE = Event(1.5, 0.1, 10), Event(20.0)
RECORDS = Relation(Adjacency.ADD_REMOVE, "server")


def _allotment(run: str = "run-1", epsilon: float = 1.0, delta: float = 1e-5, population: str = "ward") -> Allotment:
    return Allotment(run, population, ((TRAIN, 3), (EVALUATE, 1)), epsilon, delta, Adjacency.ADD_REMOVE, "server")


def test_runs_add_up_to_the_limit_and_not_beyond() -> None:
    tenths = [_allotment(f"run-{index}", 0.1) for index in range(9)]
    admit(tenths, _allotment("last", 0.1), 1.0)  # ten times 0.1 fills 1.0 exactly, whatever floats say
    with pytest.raises(BudgetExceeded, match=r"at most 1 over all runs; got 0\.9 already allotted and 0\.11"):
        admit(tenths, _allotment("last", 0.11), 1.0)
    assert spent(tenths) == {RECORDS: (0.9, 9e-5)}


def test_a_resumed_run_counts_once_and_keeps_its_allotment() -> None:
    first = _allotment("run-1", 1.0)
    admit([first], first, 1.0)
    with pytest.raises(BudgetExceeded, match="keep its allotment"):
        admit([first], replace(first, epsilon=0.5), 2.0)


def test_no_limit_admits_a_run_without_a_bound_but_a_limit_does_not() -> None:
    unbounded = _allotment("study", math.inf)
    admit([], unbounded, None)
    with pytest.raises(BudgetExceeded, match=r"at most 100 over all runs; got run 'study', which claims no bound"):
        admit([], unbounded, 100.0)
    with pytest.raises(BudgetExceeded, match="runs without any bound already admitted: 'study'"):
        admit([unbounded], _allotment("next", 0.1), 100.0)
    assert spent([unbounded]) == {RECORDS: (math.inf, 1e-5)}


def _other(run: str = "other", **changes: object) -> Allotment:
    whole = replace(
        _allotment(run), events=((Event(1.5, adjacency=Adjacency.ZERO_OUT), 3),), adjacency=Adjacency.ZERO_OUT
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("other", [_other(), replace(_allotment("other"), against="world")])
def test_bounds_of_other_relations_are_summed_apart_and_refused_under_a_limit(other: Allotment) -> None:
    first = _allotment("first", 0.5)
    admit([first], other, None)
    assert spent([first, other]) == {RECORDS: (0.5, 1e-5), other.relation: (1.0, 1e-5)}
    for before, new in ((first, other), (other, first)):
        with pytest.raises(BudgetExceeded, match="do not add up") as caught:
            admit([before], new, 100.0)
        assert f"{before.relation} before, {new.relation} in run" in str(caught.value)
    with pytest.raises(BudgetExceeded, match="do not add up"):
        admit([first, other], _allotment("third", 0.1), 100.0)


def test_an_allotment_and_its_events_speak_of_one_relation() -> None:
    with pytest.raises(BudgetExceeded, match="events stated for zero-out; got add-remove"):
        admit([], _other(events=((TRAIN, 1),)), None)


def test_a_run_that_counts_as_spent_goes_on_whatever_the_limit_became() -> None:
    first, second = _allotment("first", 1.0), _allotment("second", 1.0)
    admit([first, second], first, 0.5)
    with pytest.raises(BudgetExceeded):
        admit([first, second], _allotment("third", 0.1), 0.5)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(-0.1, 1e-5), (math.nan, 1e-5), (1.0, -1e-9), (1.0, 1.0), (1.0, math.nan)]
)
def test_numbers_that_would_refund_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(BudgetExceeded, match="Compute the allotment"):
        admit([], _allotment(epsilon=epsilon, delta=delta), None)


def test_another_population_is_another_ledger() -> None:
    with pytest.raises(BudgetExceeded, match="this population only"):
        admit([_allotment("run-1", population="clinic")], _allotment("run-2"), 10.0)


def test_deltas_add_up_too() -> None:
    with pytest.raises(BudgetExceeded, match="total delta below 1"):
        admit([_allotment("run-1", delta=0.6)], _allotment("run-2", delta=0.5), None)


@given(st.lists(st.booleans(), max_size=12))
def test_charges_are_a_part_of_the_allotment(order: list[bool]) -> None:
    allotment, charged = _allotment(), dict[str, int]()
    left = {TRAIN.digest: 3, EVALUATE.digest: 1}
    for train in order:
        event = TRAIN if train else EVALUATE
        if left[event.digest] == 0:
            with pytest.raises(BudgetExceeded, match="Nothing was released"):
                admit_charge(allotment, charged, event)
            continue
        admit_charge(allotment, charged, event)
        left[event.digest] -= 1
        charged[event.digest] = charged.get(event.digest, 0) + 1


def test_an_event_that_was_not_allotted_is_refused() -> None:
    for stranger in (Event(1.49, 0.1, 10), Event(1.5, 0.11, 10), Event(1.5, 0.1, 11)):
        with pytest.raises(BudgetExceeded):
            admit_charge(_allotment(), {}, stranger)


def test_the_same_mechanism_has_one_name() -> None:
    assert Event(1, 1).digest == Event(1.0, 1.0).digest
    twice = Allotment("run", "ward", ((Event(1), 1), (Event(1.0), 2)), 1.0, 1e-5, Adjacency.ADD_REMOVE, "server")
    assert twice.counts == {Event(1.0).digest: 3}


@pytest.mark.parametrize("epsilon", [0.75, math.inf])
def test_json_round_trip(epsilon: float) -> None:
    allotment = _allotment(epsilon=epsilon)
    assert Allotment.from_json(allotment.to_json()) == allotment


@pytest.mark.parametrize("damage", [{"epsilon": "much"}, {"events": [[{"mechanism": "magic"}, 1]]}, {"events": None}])
def test_damaged_json_is_a_store_error(damage: dict[str, object]) -> None:
    value = {**_allotment().to_json(), **damage}
    with pytest.raises(StoreError, match="can be read"):
        Allotment.from_json(value)  # type: ignore[arg-type]
    with pytest.raises(StoreError):
        Allotment.from_json({})
