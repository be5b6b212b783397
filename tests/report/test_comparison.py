"""A comparison on a page: words for what the server sees, figure, table; whatever came in is escaped."""

from typing import Any
from xml.etree import ElementTree

import pytest

from consilia.report import comparison

ROW: dict[str, Any] = {
    "name": "plain", "title": "plain", "reason": None, "accuracy": 0.8123, "spread": 0.012, "accuracies": [0.80, 0.8246],
    "epsilon": None, "against": None, "delta": None, "wall": 0.0123, "cpu": 0.0045, "up": 376.0, "down": 316.0, "setup": 0.02,
    "setup_bytes": 0.0, "sites": 4, "rounds": 20, "sees": "each site's update as it is",
}  # fmt: skip
PRIVATE = ROW | {"name": "dp", "title": "DP at each site", "epsilon": 0.99996, "against": "server", "delta": 1e-3}
ABSENT = {"name": "attested", "title": "attested", "reason": "attested sums needs a TPM; got none"}
DOCUMENT = {"plan": "heart <b>", "seeds": [1, 2], "rows": [ROW, PRIVATE, ABSENT]}


@pytest.mark.parametrize(
    ("mode", "unit", "words"),
    [
        (None, "none", "each site's update as it is"),
        (None, "record", "each site's update, which carries noise of its own"),
        ("masks", "none", "only the sum of 4 updates; more only with the help of 3 sites"),
        ("masks", "record", "only the sum of 4 updates, which carries the noise; more"),
        ("rlwe", "none", "only sums that 3 of 4 sites open together"),
        ("paillier", "none", "with the help of any one site each update"),
        ("attested", "none", "that code sees each update"),
    ],
)
def test_what_the_server_sees(mode: str | None, unit: str, words: str) -> None:
    facts: Any = {"unit": unit, "secure": mode and {"mode": mode, "cohort": 4, "threshold": 3}}
    assert words in comparison.sees(facts)


def test_numbers_of_a_row() -> None:
    assert comparison.cells(ROW) == ("plain", "81.2 ± 1.2", "none", "4.50", "12.3", "376 B", "316 B", "0.02")
    assert comparison.cells(PRIVATE)[2] == "1"  # a bound is rounded up
    assert comparison.cells(ROW | {"accuracy": None, "spread": None})[1] == "none"
    assert comparison.runs(DOCUMENT) == "4 sites, 20 rounds, 2 runs a row (run.seed 1 to 2)"
    assert comparison.runs(DOCUMENT | {"seeds": [1]}) == "4 sites, 20 rounds, 1 run a row (run.seed 1)"


def test_the_page_holds_every_row_and_fetches_nothing() -> None:
    page = comparison.page(DOCUMENT)
    assert "heart &lt;b&gt;" in page
    assert "<b>: one" not in page
    assert "1 at delta 0.001, against server" in page
    assert "attested sums needs a TPM; got none" in page
    assert not any(word in page for word in ("http", "<script", "<link", "@import"))
    assert "Did not run" not in comparison.page(DOCUMENT | {"rows": [ROW]})


def test_the_figure_is_a_file_of_its_own() -> None:
    text = comparison.svg(DOCUMENT)
    root = ElementTree.fromstring(text)  # noqa: S314  (we wrote it)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"plain", "DP at each site", "4.50 ms", "376 B"} <= set(words)
    assert "attested" not in words
    assert "--accent: #0c6b6f" in text
    assert text == comparison.svg(DOCUMENT)
