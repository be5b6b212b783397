"""A search is one allotment: its trials add nothing, fit it, and are not more than it drew."""

from dataclasses import replace

import pytest

from consilia.core.errors import BudgetExceeded, StoreError
from consilia.core.spec import Adjacency
from consilia.dp.event import Event
from consilia.dp.ledger import Allotment, Relation, admit, admit_charge, spent
from consilia.dp.search import Search
from consilia.dp.selection_trials import NegativeBinomial

TRAIN, SCORE = Event(1.5, 0.1, 10), Event(20.0)
LAW = NegativeBinomial.of_mean(1.0, 5.0)
BASES = (((TRAIN, 3), (SCORE, 1)), ((Event(2.0, 0.1, 10), 5),))
SEARCH = Allotment("tune-1", "ward", (), 2.0, 1e-5, Adjacency.ADD_REMOVE, "world", search=Search(LAW, 2, BASES))


def _trial(run: str, **changes: object) -> Allotment:
    trial = replace(SEARCH, run=run, events=BASES[0], search=None, within="tune-1")
    return replace(trial, **changes)  # type: ignore[arg-type]


def test_trials_add_nothing_to_the_price_of_their_search() -> None:
    admit([], SEARCH, 2.0)
    first, second = _trial("tune-1/1"), _trial("tune-1/2", events=BASES[1])
    admit([SEARCH], first, 2.0)
    admit([SEARCH, first], second, 2.0)
    assert spent([SEARCH, first, second]) == {Relation(Adjacency.ADD_REMOVE, "world"): (2.0, 1e-5)}
    after = replace(_trial("run-2"), within=None, epsilon=0.5)
    admit([SEARCH, first, second], after, 2.5)
    with pytest.raises(BudgetExceeded, match="2 already allotted"):
        admit([SEARCH, first, second], after, 2.4)


def test_no_trial_beyond_the_number_drawn_but_each_goes_on() -> None:
    trials = [_trial("tune-1/1"), _trial("tune-1/2")]
    with pytest.raises(BudgetExceeded, match="at most the trials"):
        admit([SEARCH, *trials], _trial("tune-1/3"), None)
    admit([SEARCH, *trials], trials[1], None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"within": "tune-2"}, "admitted before its trials"),
        ({"events": ((TRAIN, 4), (SCORE, 1))}, "other events"),
        ({"events": ((TRAIN, 3),)}, "other events"),
        ({"epsilon": 1.0}, "the claim of its search"),
        ({"against": "server"}, "the claim of its search"),
    ],
)
def test_a_trial_that_its_search_was_not_admitted_for_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(BudgetExceeded, match=message):
        admit([SEARCH], _trial("tune-1/1", **changes), None)


def test_a_run_is_no_search() -> None:
    run = _trial("tune-1", within=None)
    with pytest.raises(BudgetExceeded, match="admitted before its trials"):
        admit([run], _trial("tune-1/1"), None)


def test_a_search_itself_charges_nothing_and_speaks_of_one_relation() -> None:
    with pytest.raises(BudgetExceeded, match="charge 1 of 0"):
        admit_charge(SEARCH, {}, TRAIN)
    foreign = Search(LAW, 2, (((Event(1.0, adjacency=Adjacency.ZERO_OUT), 1),),))
    with pytest.raises(BudgetExceeded, match="events stated for add-remove; got zero-out"):
        admit([], replace(SEARCH, search=foreign), None)


@pytest.mark.parametrize("allotment", [SEARCH, _trial("tune-1/1"), replace(_trial("plain"), within=None)])
def test_allotments_are_read_back(allotment: Allotment) -> None:
    assert Allotment.from_json(allotment.to_json()) == allotment
    plain = allotment.search is None and allotment.within is None
    assert plain == ({"search", "within"}.isdisjoint(allotment.to_json()))


@pytest.mark.parametrize("search", [{}, 3, {"law": {"law": "?"}, "trials": 1, "bases": []}, {"bases": [3]}])
def test_what_is_no_search_is_not_read(search: object) -> None:
    with pytest.raises(StoreError, match="an allotment that can be read"):
        Allotment.from_json({**SEARCH.to_json(), "search": search})  # type: ignore[dict-item]
