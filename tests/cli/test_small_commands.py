"""account, calibrate, init and schema."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from consilia.plan.load import load

Call = Callable[..., Any]
NUMBERS = ("--sampling-rate", "0.01", "--steps", "1000", "--delta", "1e-5", "--json")


def test_account_and_calibrate_agree(call: Call) -> None:
    noise = call("calibrate", "--epsilon", "2", *NUMBERS).document
    cost = call("account", "--noise-multiplier", repr(noise["noise_multiplier"]), *NUMBERS).document
    assert cost["epsilon"] == noise["epsilon"] <= 2
    assert noise["target_epsilon"] == 2
    assert cost["accountant"]
    less = call("account", "--noise-multiplier", repr(noise["noise_multiplier"] / 1.01), *NUMBERS).document
    assert less["epsilon"] > 2


@pytest.mark.parametrize(
    ("epsilon", "rate", "steps", "proved"),
    [("1", "1", "1", True), ("1.01", "1", "1", False), ("1", "0.5", "1", False), ("1", "1", "2", False)],
)
def test_the_textbook_bound_is_shown_where_it_is_proved(
    call: Call, epsilon: str, rate: str, steps: str, proved: bool
) -> None:
    numbers = ("--epsilon", epsilon, "--sampling-rate", rate, "--steps", steps, "--delta", "1e-5")
    found = call("calibrate", *numbers, "--json").document
    text = call("calibrate", *numbers).out
    if proved:
        assert found["textbook"] == pytest.approx(4.844805, rel=1e-6)  # sqrt(2 ln(1.25e5))
        assert found["textbook"] > found["noise_multiplier"]
        assert "textbook bound" in text
        assert "4.8448" in text
    else:
        assert found["textbook"] is None
        assert "textbook" not in text


def test_text_of_account(call: Call) -> None:
    outcome = call("account", "--noise-multiplier", "1.1", *NUMBERS[:-1])
    assert outcome.code == 0
    assert "epsilon" in outcome.out
    assert "at delta 1e-5" in outcome.out


@pytest.mark.parametrize("bad", ["nan", "-0.1", "2", "0"])
def test_numbers_out_of_range_all_at_once(call: Call, bad: str) -> None:
    outcome = call(
        "account", "--sampling-rate", bad, "--noise-multiplier", "-inf", "--steps", "0", "--delta", "1", "--json"
    )
    assert outcome.code == 2
    assert [problem["who"] for problem in outcome.problems] == [
        "option --sampling-rate", "option --steps", "option --delta", "option --noise-multiplier",
    ]  # fmt: skip


def test_infinite_target_is_refused(call: Call) -> None:
    outcome = call("calibrate", "--epsilon", "inf", *NUMBERS)
    assert outcome.code == 2
    assert len(outcome.problems) == 1


def test_init_writes_a_plan_that_loads_and_never_overwrites(call: Call) -> None:
    assert call("init", "my plan.toml", "--json").document == {"path": "my plan.toml"}
    assert load("my plan.toml").data.source == "heart"
    Path("my plan.toml").write_text("mine", encoding="utf-8")
    outcome = call("init", "my plan.toml", "--json")
    assert outcome.code == 2
    assert Path("my plan.toml").read_text(encoding="utf-8") == "mine"
    assert call("init", "no/such/folder/plan.toml", "--json").code == 2


def test_schema_is_a_json_schema(call: Call) -> None:
    assert "privacy" in json.loads(call("schema").out)["properties"]


def test_what_json_cannot_say_becomes_null(capsys: pytest.CaptureFixture[str]) -> None:
    from consilia.cli.output import emit

    emit({"a": math.inf, "b": [math.nan, (1, 2.5)], "c": {1: True}})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [None, [1, 2.5]], "c": {"1": True}}


def test_notes_on_rows_are_for_the_holders_own_screen(call: Call, heart: str) -> None:
    shown = " ".join(call("check", heart).out.split())
    assert "Notes on training rows, for the holder's own screen" in shown
    assert "rows repeat the features of another row" in shown
