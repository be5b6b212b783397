"""`consilia tune`: what it says before it charges, what it writes, how it refuses."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from consilia.dp.selection_trials import NegativeBinomial

Call = Callable[..., Any]
ONE = ["--set", "sites.partition=iid", "--set", "sites.count=1", "--set", "training.rounds=2"]
WORLD = [*ONE, "--set", "privacy.against=world"]
TUNE = """
trials = 3
[search]
training.server_learning_rate = [0.1, 1.0]
[public.data]
source = "heart"
split = "exact"
"""


@pytest.fixture
def tune(call: Call) -> str:
    Path("tune.toml").write_text(TUNE)  # in the call's own folder
    return "tune.toml"


def test_check_says_the_cost_and_charges_nothing(call: Call, heart: str, tune: str) -> None:
    outcome = call("tune", heart, "--search", tune, *WORLD, "--check", "--json")
    assert outcome.code == 0
    cost = outcome.document["cost"]
    assert 0.99 < cost["epsilon"] <= 1.0
    assert cost["one_trial"] < cost["epsilon"] < cost["all_published"]
    assert (cost["distribution"], cost["trials"], cost["against"]) == ("geometric", pytest.approx(3.0), "world")
    assert not Path(".consilia").exists()
    assert not Path("searches").exists()
    shown = call("tune", heart, "--search", tune, *WORLD, "--check")
    assert "3 on average (geometric), at most 8 with chance 95 %" in shown.out


def test_a_search_leaves_a_winner_its_plan_and_one_charge(
    call: Call, heart: str, tune: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NegativeBinomial, "draw", lambda self, rng: 3)
    outcome = call("tune", heart, "--search", tune, *WORLD, "--out", "found", "--json")
    assert outcome.code == 0
    document = outcome.document
    assert document["winner"]["epsilon"] == document["cost"]["epsilon"]
    assert outcome.err.count("score") == 3
    written = tomllib.loads(Path(document["plan"]).read_text())
    assert written["privacy"]["noise_multiplier"] == document["winner"]["noise_multiplier"]
    page = Path(document["report"]).read_text()
    assert "best of a random number of trials" in page
    ledger = json.loads(call("ledger", "show", "--json").out)["ledgers"][0]
    assert [len(ledger["runs"]), ledger["runs"][0]["trials"], ledger["runs"][0]["allotted"]] == [4, 3, 0]
    assert [row["epsilon"] for row in ledger["spent"]] == [document["cost"]["epsilon"]]
    again = call("tune", heart, "--search", tune, *WORLD, "--out", "found", "--json")
    assert again.code == 5
    assert again.problems[0]["needs"] == "an empty folder"


def test_no_winner_is_told(call: Call, heart: str, tune: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NegativeBinomial, "draw", lambda self, rng: 0)
    outcome = call("tune", heart, "--search", tune, *WORLD)
    assert outcome.code == 4
    assert "the whole search" in outcome.out


def test_interrupted_it_stays_charged(call: Call, heart: str, tune: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from consilia.federation import session

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "start", stop)
    outcome = call("tune", heart, "--search", tune, *WORLD)
    assert outcome.code == 130
    assert "stays charged as a whole" in outcome.err
    assert len(json.loads(call("ledger", "show", "--json").out)["ledgers"][0]["spent"]) == 1


def test_a_claim_against_the_coordinator_is_refused_in_words(call: Call, heart: str, tune: str) -> None:
    outcome = call("tune", heart, "--search", tune, *ONE, "--json")
    assert outcome.code == 2
    (problem,) = outcome.problems
    assert problem["who"] == "plan key privacy.against"
    assert 'distribution = "fixed", which charges every trial' in problem["hint"]


def test_public_writes_a_plan_that_runs_and_no_ledger(call: Call, heart: str, tune: str) -> None:
    outcome = call("tune", heart, "--search", tune, *ONE, "--public", "--json")
    assert outcome.code == 0
    assert len(outcome.document["trials"]) == 3
    assert not Path(".consilia").exists()
    assert call("check", "tuned.toml", "--json").code == 0
    again = call("tune", heart, "--search", tune, *ONE, "--public", "--json")
    assert (again.code, again.problems[0]["needs"]) == (2, "a path without a file")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("tune", "nowhere.toml", "--search", "tune.toml"), "nowhere.toml"),
        (("tune", "PLAN", "--search", "nothing.toml"), "tune file nothing.toml"),
        (("tune", "PLAN"), "--search"),
    ],
)
def test_misuse(call: Call, heart: str, tune: str, arguments: tuple[str, ...], word: str) -> None:
    outcome = call(*(heart if word == "PLAN" else word for word in arguments), "--json")
    assert outcome.code == 2
    assert word in str(outcome.problems)
