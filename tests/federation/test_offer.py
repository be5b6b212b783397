"""Offers and surveys: they cross as they are, and nothing else is taken for one."""

import json
from typing import Any

import pytest
from tests.federation.hospitals import plan_text

from consilia.core.errors import ProtocolError
from consilia.federation.assemble import RowShape
from consilia.federation.offer import Offer, Surveyed
from consilia.plan.load import canonical, from_text
from consilia.plan.travelling import travelling

OFFER = Offer("heart-1", travelling(from_text(plan_text())), {"Cleveland": 100, "Hungary": 7}, "d" * 64)


def read(body: dict[str, Any]) -> Offer:
    return Offer.read(json.loads(json.dumps(body)), who="test")


def test_an_offer_crosses_as_it_is() -> None:
    back = read(dict(OFFER.body()))
    assert back == OFFER
    assert canonical(back.plan) == canonical(OFFER.plan)


@pytest.mark.parametrize(
    "changes",
    [
        {"run": "../../etc/passwd"},
        {"run": ""},
        {"run": "a" * 129},
        {"run": ".hidden"},
        {"run": None},
        {"digest": 3},
        {"digest": "d" * 129},
        {"version": None},
        {"counts": None},
        {"counts": {"Cleveland": 0}},
        {"counts": {"Cleveland": True}},
        {"counts": {"Cleveland": 10**13}},
        {"counts": {"Cleveland": 1.5}},
        {"plan": None},
        {"plan": {"data": {"source": "heart"}, "surprise": {}}},
    ],
)
def test_what_is_no_offer_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        read({**OFFER.body(), **changes})


@pytest.mark.parametrize("path", ["/home/anna/rows.csv", "C:\\Users\\anna\\rows.csv", "rows.csv"])
def test_of_a_path_only_the_name_travels(path: str) -> None:
    plan = from_text(plan_text())
    plan = plan.model_copy(update={"data": plan.data.model_copy(update={"path": path, "labels_path": path})})
    data = travelling(plan).data
    assert (data.path, data.labels_path) == ("rows.csv", "rows.csv")


def test_a_survey_crosses_as_it_is() -> None:
    for one in (Surveyed(RowShape((3, 8, 8), 10), 100), Surveyed(RowShape((13,), 2), None)):
        assert Surveyed.read(json.loads(json.dumps(one.body())), who="test") == one


@pytest.mark.parametrize(
    "changes",
    [
        {"input_shape": []},
        {"input_shape": [1, 2, 3, 4, 5]},
        {"input_shape": [True]},
        {"input_shape": "13"},
        {"classes": 0},
        {"classes": "2"},
        {"classes": True},
        {"count": 0},
        {"count": "many"},
    ],
)
def test_what_is_no_survey_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        Surveyed.read({**Surveyed(RowShape((13,), 2), 5).body(), **changes}, who="test")
