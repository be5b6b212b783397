"""The RLWE benchmark in small: it stops at a wrong sum, and the page reaches its goals."""

import json
from typing import Any

import benchmarks.timing.rlwe as timing
import numpy as np
import pytest
from benchmarks.rlwe import GOALS, page
from benchmarks.study import RESULTS, ROOT
from numpy.typing import NDArray

from consilia.crypto.rlwe_threshold import combine


def test_a_small_comparison() -> None:
    found: Any = timing.compare(4_000, 2)
    ours = found["schemes"]["16 bits"]
    assert ours["bytes_a_value"] < GOALS["bytes_a_value"]
    assert all(ours[f"{step}_s"]["median"] > 0 for step in ("encrypt", "add", "answer", "open"))
    for name in set(found["schemes"]) & set(timing.PEERS):
        assert found["schemes"][name]["encrypt_s"]["median"] > 0


def test_a_sum_that_is_not_exact_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*arguments: Any) -> NDArray[np.int64]:
        return combine(*arguments) + 1

    turn, _ = timing.threshold(16, 50)
    turn()
    monkeypatch.setattr(timing, "combine", wrong)
    with pytest.raises(SystemExit, match="not exact"):
        turn()


def test_the_page_is_that_of_the_result_and_reaches_the_goals() -> None:
    result = json.loads((RESULTS / "rlwe.json").read_text())
    assert (ROOT / "benchmarks" / "RLWE.md").read_text(encoding="utf-8") == page(result)
    schemes = result["found"]["schemes"]
    for name in (name for name in timing.PEERS if name.startswith("CKKS")):
        assert schemes[name]["encrypt_ratio"]["lower"] >= GOALS["encrypt_ratio"]
    assert all(told["bytes_a_value"] <= GOALS["bytes_a_value"] for told in schemes.values() if "flood_bits" in told)
