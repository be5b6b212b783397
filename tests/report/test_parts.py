"""The parts a page is made of: markup, history, series, the plan's text, the model card."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.report.conftest import PLAN

from consilia.plan.load import canonical, from_text
from consilia.report import history, plan_text, series
from consilia.report.document import Document
from consilia.report.markup import Html, join, tag
from consilia.report.model_card import model_card

Make = Callable[..., Document]


@given(st.text(), st.text())
def test_only_markup_is_markup(text: str, value: str) -> None:
    element = tag("p", text, tag("b", "bold"), title=value)
    inside = element.removesuffix("<b>bold</b></p>").removeprefix('<p title="')
    assert inside.count("<") == 0
    assert inside.count('"') == 1  # the one that closes the attribute
    assert isinstance(join(text, element), Html)


def test_attributes_without_a_value_are_left_out() -> None:
    assert tag("td", "x", class_=None, scope="row") == '<td scope="row">x</td>'


@given(st.sets(st.integers(1, 60)))
def test_ranges_name_every_round(rounds: set[int]) -> None:
    named: set[int] = set()
    for piece in history.ranges(sorted(rounds), most=100).split(", ") if rounds else []:
        first, _, last = piece.partition("–")
        named |= set(range(int(first), int(last or first) + 1))
    assert named == rounds


def test_ranges_count_the_rest() -> None:
    assert history.ranges([1, 3, 5, 7, 8], most=2) == "1, 3 and 3 more"


def test_turns_skipped_and_dropped(make_document: Make) -> None:
    records = make_document().records
    assert history.turns(records)["Switzerland"] == history.Turns(asked=40, counted=37)
    assert history.turns(records)["Hungary"] == history.Turns(asked=40, counted=38)
    assert history.skipped(records) == [("2 of 4 answers; quorum 3", [7, 8])]
    assert history.dropped(records) == [("Switzerland", "late", [7, 20])]


def test_series_leave_gaps_where_nothing_was_released(make_document: Make) -> None:
    records = make_document().records
    xs, ys = series.of(records, "accuracy")
    assert len(xs) == len(ys) == 38
    assert not {7.0, 8.0} & set(xs)
    assert set(series.per_site(records, "per_site", "accuracy")) == {
        "Cleveland",
        "Hungary",
        "Switzerland",
        "VA Long Beach",
    }
    assert series.per_site(records, "update_norms", None)["Switzerland"][0][-1] == 40
    found = series.last_pairs(records)
    assert found is not None
    assert found[0] == 40
    assert len(found[1]) == 6
    assert series.running_total(records, "bytes_up")[1][-1] == 40 * 2800


@given(st.integers(1, 5000))
def test_thinned_keeps_the_last_and_stays_small(count: int) -> None:
    records: list[dict[str, Any]] = [{"round": number} for number in range(1, count + 1)]
    kept = series.thinned(records)
    assert len(kept) <= series.MAX_POINTS
    assert kept[-1]["round"] == count
    assert [record["round"] for record in kept] == sorted({record["round"] for record in kept})


def test_numbers_that_are_none_do_not_draw() -> None:
    assert [series.number(value) for value in (float("nan"), float("inf"), True, "x", None, 3)] == [None] * 5 + [3.0]


def test_plan_text_is_the_plan() -> None:
    extra = '[aggregation]\nselection = "count"\ncount = 3\n[training]\n'
    plan = from_text(
        PLAN.replace("[training]\n", extra).replace(
            'counts = "public"', 'counts = { "VA Long Beach" = 85, Cleveland = 199 }'
        )
    )
    again = from_text(plan_text.text(canonical(plan)))  # type: ignore[arg-type]
    assert canonical(again) == canonical(plan)


def test_model_card_is_markdown_that_cannot_be_broken(make_document: Make) -> None:
    document = make_document()
    facts = {**document.facts, "warnings": ["<img src=x> | bar\nline"]}
    card = model_card(Document(**{**document.__dict__, "facts": facts}), "model.safetensors")
    assert "<img" not in card
    assert "&lt;img src=x> \\| bar line" in card
    assert "| Cleveland | 199 | 104 |" in card
    assert "**(0.9999, 0.001)-differentially private for one record.**" in card
    assert card.count("```") == 2
