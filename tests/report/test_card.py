"""What the card says must be what CLAIMS allow, for every placement of noise and every mode."""

from typing import Any

import pytest
from tests.report.conftest import facts

from consilia.plan.facts import Facts
from consilia.plan.run_plan import ADVERSARIES
from consilia.report.card import Card, build, claim, verdict_of


def value(card: Card, label: str) -> str:
    return next(row.value for group in card.groups for row in group.rows if row.label == label)


def note(card: Card, label: str) -> str:
    return next(row.note for group in card.groups for row in group.rows if row.label == label)


def server_noise() -> Facts:
    bounds: dict[str, float | None] = {"server": None, "server+colluding-sites": None, "other-sites": 0.7, "world": 0.7}
    sites: Any = [{**site, "epsilon": bounds} for site in facts()["sites"]]
    return facts(noise="server", against="world", epsilon=0.7, sites=sites, algorithm="fedsgd")


def test_every_row_says_something() -> None:
    for case in (
        facts(),
        server_noise(),
        facts(unit="none", epsilon=None, delta=None),
        facts(reproducible=True, epsilon=None),
    ):
        for group in build(case, {}).groups:
            assert all(row.label and row.value for row in group.rows)


def test_noise_at_the_sites() -> None:
    card = build(facts(), {"Hungary": "abc"})
    assert card.verdict == "private"
    assert card.headline == "(0.9999, 0.001)-differentially private for one record"
    assert "a factor of at most 2.72" in card.statement
    assert value(card, "Accountant") == "PLD (dp-accounting 0.6.0)"
    assert "3.1e-8" in note(card, "Delta")
    assert "smallest centre" in note(card, "Delta")
    assert value(card, "Batch cap") == "30 to 60 records"
    assert value(card, "Participations of a site") == "at most 40 of 40 rounds"
    assert value(card, "Training loss") == "hidden"
    assert card.heads == (("Hungary", "abc"),)
    assert [row.sites for row in card.bounds] == [("Cleveland", "Hungary", "Switzerland", "VA Long Beach")]


def test_noise_at_the_coordinator_bounds_nothing_against_it() -> None:
    card = build(server_noise(), {})
    assert dict(zip(ADVERSARIES, card.bounds[0].epsilon, strict=True)) == {
        "server": "none", "server+colluding-sites": "none", "other-sites": "0.7", "world": "0.7",
    }  # fmt: skip
    assert value(card, "Norms and directions") == "hidden"
    assert "without noise" in value(card, "Updates")
    assert any(point.startswith("The coordinator itself") for point in card.not_covered)
    assert "anyone who is given the released model" in card.statement


def test_sites_with_other_bounds_stand_apart() -> None:
    sites: Any = facts()["sites"]
    sites[2] = {**sites[2], "participations": 24, "epsilon": dict.fromkeys(ADVERSARIES, 0.6)}
    card = build(facts(sites=sites), {})
    assert {(row.turns, len(row.sites), row.epsilon[0]) for row in card.bounds} == {(40, 3, "0.9999"), (24, 1, "0.6")}
    assert value(card, "Participations of a site") == "at most 40 of 40 rounds"


def test_reproducible_mode_claims_nothing() -> None:
    case = facts(reproducible=True, epsilon=None)
    card = build(case, {})
    assert (card.verdict, card.headline) == ("not-private", "This run is not private")
    assert value(card, "Epsilon").startswith("none")
    assert value(card, "Randomness").startswith("public seed")
    assert "not private" in claim(case)
    # whatever number slips in beside the flag, the flag wins
    assert verdict_of(facts(reproducible=True, epsilon=1.0)) == "not-private"


def test_open_run() -> None:
    case = facts(unit="none", epsilon=None, delta=None)
    card = build(case, {})
    assert card.verdict == "open"
    assert value(card, "Updates") == "each site's update, in clear"
    assert value(card, "Training loss") == "in clear"
    assert card.not_covered[0].startswith("Anything")
    assert claim(case).startswith("no epsilon")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"metrics": "public"}, "Held-out rows: their metrics were declared public"),
        ({"unit": "record"}, "A patient with several records"),
        ({"unit": "record"}, "A patient at two sites: each site's bound is its own, so the two epsilons"),
        ({"unit": "site", "adjacency": "zero-out"}, "A patient at two sites: the bound is for one site's contribution"),
        ({}, "The choice of hyper-parameters"),
        ({}, "Floating point"),
        ({}, "Poisoning"),
        ({}, "The fact of taking part"),
        ({}, "Which rows are held out: the split is public"),
    ],
)
def test_what_is_not_covered(changes: dict[str, object], words: str) -> None:
    assert any(point.startswith(words) for point in build(facts(**changes), {}).not_covered)


@pytest.mark.parametrize("metrics", ["charged", "hidden"])
def test_held_out_rows_are_only_public_where_the_plan_says_so(metrics: str) -> None:
    assert not any(point.startswith("Held-out rows") for point in build(facts(metrics=metrics), {}).not_covered)


@pytest.mark.parametrize("batch", ["full", "fixed"])
def test_no_amplification_without_poisson(batch: str) -> None:
    card = build(facts(batch=batch), {})
    assert value(card, "Sampling of records") == "none"
    assert "no amplification is claimed" in note(card, "Sampling of records")
    with pytest.raises(StopIteration):
        value(card, "Batch cap")


def test_poisson_at_site_level_claims_no_amplification() -> None:
    card = build(facts(unit="site", adjacency="zero-out"), {})
    assert "no amplification is claimed" in note(card, "Sampling of records")


def test_statement_follows_the_adjacency() -> None:
    for adjacency, words in (
        ("add-remove", "with or without any single record"),
        ("replace-one", "whatever the content of any single record"),
        ("zero-out", "with or without any single site's contribution"),
    ):
        assert words in build(facts(adjacency=adjacency), {}).statement
