"""The secure aggregation benchmark in small: masks are most of the time, little is sent, and needless work would be seen."""

import json
from typing import Any

import pytest
from benchmarks.secagg import text
from benchmarks.study import RESULTS, ROOT
from benchmarks.timing.secagg import Setting, sessions

from consilia.crypto import prg
from consilia.secagg import client

SETTING = Setting(30, 500_000, 6, watched=5, repeats=1)


def test_a_session_costs_little_more_than_its_masks() -> None:
    found: Any = sessions(SETTING)
    assert (found["client_masks"], found["server_masks"]) == (30, 24 + 6 * 24)
    assert (
        found["client_ratio"]["median"] < 4.0
    )  # short vectors: signatures and keys weigh more than with a million words
    assert found["server_ratio"]["median"] < 3.0
    assert found["bytes_up_over_float32"] <= 1.01


def test_masks_drawn_thrice_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    apply_masks = prg.apply_masks

    def thrice(words: Any, masks: Any) -> None:
        for _ in range(2):
            apply_masks(words.copy(), masks)
        apply_masks(words, masks)

    monkeypatch.setattr(client, "apply_masks", thrice)
    found: Any = sessions(SETTING)
    assert found["client_ratio"]["median"] > 3.4


def test_the_published_figures_keep_the_promise_and_the_page_is_made_from_them() -> None:
    result = json.loads((RESULTS / "secagg.json").read_text())
    rows = {(one["sites"], one["dim"], one["dropouts"], one["adversary"]): one for one in result["settings"]}
    promised = rows[100, 1_000_000, 30, "active"]
    assert promised["client_ratio"]["median"] <= 2.0
    assert promised["server_ratio"]["median"] <= 1.4
    assert promised["bytes_up_over_float32"] <= 1.01
    assert (500, 100_000, 150, "active") in rows
    assert (ROOT / "benchmarks" / "SECAGG.md").read_text(encoding="utf-8") == text()
