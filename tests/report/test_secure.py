"""Under a secure sum the card says who sees what, who may collude, what it costs, and what the mode does not protect."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.report.conftest import facts

from consilia.plan.facts import Facts
from consilia.report.card import build, claim
from consilia.report.document import Document
from consilia.report.model_card import model_card
from consilia.report.page import render
from consilia.report.protections import protections

Make = Callable[..., Document]
BY_SUM = "hidden by the secure sum"


def secure(**changes: object) -> dict[str, Any]:
    """Masks over four sites, of which one may drop out and one collude."""
    values: dict[str, Any] = {
        "mode": "masks", "adversary": "active", "cohort": 4, "dropouts": 1, "colluders": 1, "fewest": 3, "honest": 2,
        "threshold": 3, "ring_bits": 24, "distributed": False, "excess": 1.0,
    }  # fmt: skip
    return values | changes


def shared(**changes: object) -> Facts:
    """A run whose noise is shared out."""
    sums = secure(distributed=True, excess=2.0, **changes)
    bounds = {"server": 0.8, "server+colluding-sites": 0.9999, "other-sites": 0.9999, "world": 0.8}
    sites: Any = [{**site, "epsilon": bounds} for site in facts()["sites"]]
    return facts(noise="distributed", against="server+colluding-sites", secure=sums, sites=sites, algorithm="fedsgd")


def lines(case: Facts, title: str) -> dict[str, str]:
    return {
        row.label: f"{row.value}; {row.note}"
        for group in build(case, {}).groups
        if group.title == title
        for row in group.rows
    }


@pytest.mark.parametrize("mode", ["masks", "rlwe", "paillier", "attested"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"unit": "none", "epsilon": None, "delta": None}, {"noise": "server", "against": "world"},
     {"reproducible": True, "epsilon": None}],
)  # fmt: skip
def test_every_row_says_something(mode: str, changes: dict[str, object]) -> None:
    for group in build(facts(secure=secure(mode=mode), **changes), {}).groups:
        assert all(row.label and row.value for row in group.rows)


def test_the_price_of_dropouts_and_colluders_stands_on_the_card() -> None:
    price = lines(shared(), "Secure sum")["Price of dropouts and colluders"]
    assert price.startswith("2 times the variance; 1 + 1 of 4 tolerated: 2 shares carry the whole noise")
    none = facts(noise="distributed", secure=secure(distributed=True, dropouts=0, colluders=0, fewest=4, honest=4))
    assert lines(none, "Secure sum")["Price of dropouts and colluders"].startswith("none; 0 + 0 of 4 tolerated")
    assert "Price of dropouts and colluders" not in lines(facts(secure=secure()), "Secure sum")


def test_the_claim_names_how_many_sites_may_collude() -> None:
    assert claim(shared()).endswith("against the coordinator together with up to 1 of the other sites")
    assert claim(shared(adversary="passive")).endswith("if it follows the protocol")
    assert "any number of other sites" in dict(build(facts(secure=secure()), {}).adversaries)["server+colluding-sites"]
    assert (
        "up to 1 of the other sites, which know their own share" in dict(build(shared(), {}).adversaries)["other-sites"]
    )


@pytest.mark.parametrize(
    ("changes", "update"),
    [
        ({"unit": "none", "epsilon": None, "delta": None}, "each site's update without noise, masked"),
        ({}, "each site's clipped and noised update, masked"),
        ({"noise": "distributed"}, "each site's clipped update with a share of the noise, masked"),
        ({"noise": "server", "against": "world"}, "each site's clipped update without noise, masked"),
    ],
)
def test_only_sums_leave(changes: dict[str, object], update: str) -> None:
    leaves = lines(facts(secure=secure(), **changes), "What leaves a site")
    assert leaves["Updates"].startswith(f"{update}: only sums are opened")
    assert leaves["Norms and directions"].startswith(BY_SUM)
    assert BY_SUM in leaves["Training loss"]
    assert leaves["Training loss"].startswith("the mean over sites") == (changes.get("unit") == "none")
    assert f"of all sites together, declared public by their holders; a single site's are {BY_SUM}" in leaves["Metrics"]


@pytest.mark.parametrize(("mode", "shape"), [("rlwe", "encrypted"), ("paillier", "encrypted"), ("attested", "sealed")])
def test_other_modes_name_what_hides_an_update(mode: str, shape: str) -> None:
    assert f", {shape}: only sums" in lines(facts(secure=secure(mode=mode)), "What leaves a site")["Updates"]


@pytest.mark.parametrize(
    ("changes", "topic"),
    [
        ({"mode": "masks"}, "A coordinator together with 3 or more of the 4 sites"),
        ({"mode": "masks", "adversary": "passive"}, "A coordinator that breaks the protocol"),
        ({"mode": "rlwe"}, "A coordinator that breaks the protocol together with a site"),
        ({"mode": "paillier"}, "Any one site together with the coordinator"),
        ({"mode": "attested"}, "The machine that runs the attested code"),
    ],
)
def test_what_a_mode_does_not_protect(changes: dict[str, object], topic: str) -> None:
    points = build(facts(secure=secure(**changes)), {}).not_covered
    assert sum(point.startswith(f"{topic}:") for point in points) == 1
    assert not any(point.startswith(topic) for point in build(facts(), {}).not_covered)
    assert any("nobody can look at a single update" in point for point in points)


def test_without_noise_a_sum_speaks_for_itself() -> None:
    case = facts(secure=secure(), unit="none", epsilon=None, delta=None)
    assert any(point.startswith("What a sum itself says") for point in build(case, {}).not_covered)
    assert not any(point.startswith("What a sum itself says") for point in build(shared(), {}).not_covered)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (shared(), "about 1/2 of the variance"),
        (facts(secure=secure()), "it makes epsilon no smaller: each update carries enough noise of its own"),
        (facts(secure=secure(), unit="none", epsilon=None, delta=None), "it gives no epsilon"),
        (
            facts(secure=secure(mode="attested"), noise="server", against="world"),
            "what adds the noise inside is trusted",
        ),
    ],
)
def test_more_layers_are_not_more_security(case: Facts, words: str) -> None:
    (row,) = [row for row in protections(case).rows if row.label.startswith("Secure sum")]
    assert words in row.note


@pytest.mark.parametrize(
    ("mode", "words"),
    [("paillier", "unless a single site sides with it"), ("attested", "code and its machine can be trusted")],
)
def test_what_a_mode_adds_names_its_weak_spot(mode: str, words: str) -> None:
    (row,) = [row for row in protections(facts(secure=secure(mode=mode))).rows if row.label.startswith("Secure sum")]
    assert words in row.value


def test_small_messages_add_no_privacy() -> None:
    small: Any = {"quantize_bits": 8, "random_k": 0.5, "top_k": None, "kept": 23}
    (row,) = [row for row in protections(facts(messages=small)).rows if row.label == "Small messages"]
    assert row.value == "fewer bytes: 8 bits a number, 23 of 46 numbers"
    assert "no privacy" in row.note
    assert (
        "23 of 46 numbers a round, the same at every site and drawn afresh; rounded"
        in lines(facts(messages=small), "What leaves a site")["Updates"]
    )
    assert all(row.label != "Small messages" for row in protections(facts()).rows)


def test_the_page_says_what_hides_single_sites(make_document: Make) -> None:
    document = make_document(hidden=True, secure=secure())
    page = render(document)
    assert f"Each site&#x27;s own test rows, accuracy and loss are {BY_SUM}; it keeps them." in page
    assert "<th>Loss" not in page
    assert f"{BY_SUM.capitalize()}: the coordinator sees no single update" in page
    assert f"{BY_SUM.capitalize()}: the coordinator learns totals" in page
    assert f"| {BY_SUM} |" in model_card(document, "model.safetensors")
    assert BY_SUM not in render(make_document(hidden=True))
