"""The comparison with Flower in small: it stops at a wrong sum, the mean is right, and the published figures reach the goal."""

import json
from typing import Any

import numpy as np
import pytest
from benchmarks.secagg import text
from benchmarks.secagg_flower import SMALL, measure
from benchmarks.study import RESULTS
from benchmarks.timing import flower, flower_page
from numpy.typing import NDArray

from consilia.core.ring import Ring, Words


def test_a_small_comparison() -> None:
    found: Any = measure(*SMALL)
    assert found["ours"]["error"] < 2 * flower.RANGE / flower.STEPS * 5  # a step for each of five
    assert found["ours"]["client_ms"]["median"] > 0
    assert "encode" in found["ours"]["last_turn_stages_ms"]["client"]
    assert "decode" in found["ours"]["last_turn_stages_ms"]["server"]


def test_a_sum_that_is_not_exact_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    center = Ring.center

    def wrong(ring: Ring, words: Words) -> NDArray[np.int64]:
        return center(ring, words) + 1

    monkeypatch.setattr(Ring, "center", wrong)
    with pytest.raises(SystemExit, match="not exact"):
        measure(*SMALL)


def test_the_published_figures_reach_the_goal() -> None:
    result = json.loads((RESULTS / "secagg_flower.json").read_text())
    assert flower_page.section(result) in text()
    cases = {(one["sites"], one["dropouts"]): one for one in result["cases"] if one["dim"] == 100_000}
    for size, dropouts in ((10, 0), (10, 3), (50, 0), (50, 15)):
        less = cases[size, dropouts]["times_less"]
        assert min(less["client"]["median"], less["server"]["median"]) >= flower_page.GOAL
