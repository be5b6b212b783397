"""The benchmark of a whole round in small: every site checks and agrees with every other, and the page is that of the results."""

import json
from typing import Any

from benchmarks.secagg import text
from benchmarks.study import RESULTS
from benchmarks.timing.secure_round import primitives, rounds, section


def test_a_site_of_a_simulation_skips_no_check() -> None:
    sites, threshold = 5, 4
    found: Any = rounds("masks", sites, 1)
    adverts, votes = (
        sites * (sites - 1),
        sites * (threshold - 1),
    )  # at least: a site whose vote is not asked for checks all t
    assert adverts + votes <= found["signatures"] - 2 * sites <= adverts + sites * threshold  # the coordinator's apart
    assert found["agreements"] >= 2 * sites * (sites - 1)
    clear: Any = rounds("clear", sites, 1)
    assert clear["signatures"] == clear["agreements"] == 0
    assert 0 < clear["cpu_ms"]["median"] < found["cpu_ms"]["median"]


def test_primitives_take_time() -> None:
    found = primitives(3)
    assert found["signatures_us"] > 0
    assert found["agreements_us"] > 0


def test_the_page_is_that_of_the_result() -> None:
    result = json.loads((RESULTS / "secagg_round.json").read_text())
    assert section(result) in text()
    assert result["masks"]["cpu_ms"]["median"] > result["clear"]["cpu_ms"]["median"]
