"""The transport benchmark in small: what the hub adds to bare sockets is bounded, and needless work would be seen."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.study import RESULTS, ROOT
from benchmarks.timing.links import Both, beside_bare, memory, plain, running, secure_over_plain
from benchmarks.transport import GOAL, SECURE_GOAL, page

from consilia.transport.link.letter import Letter

SITES, PARAMETERS = 5, 500_000


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    with running(SITES) as made:
        yield made


def test_a_plain_round_costs_little_more_than_its_bytes(both: Both) -> None:
    found: Any = beside_bare(both, plain(PARAMETERS), 15)
    assert found["ratio"]["median"] < 6  # the goal is half of that, on a machine that does nothing else


def test_needless_work_would_be_seen(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Letter.task
    without: Any = beside_bare(both, plain(PARAMETERS), 7)

    def often(*args: Any) -> Letter:
        for _ in range(30):
            task(*args)
        return task(*args)

    monkeypatch.setattr(Letter, "task", often)
    found: Any = beside_bare(both, plain(PARAMETERS), 7)
    assert found["ratio"]["median"] > 1.5 * without["ratio"]["median"]
    assert found["ratio"]["median"] > 6


def test_a_secure_round_is_no_four_plain_ones(both: Both) -> None:
    found: Any = secure_over_plain(both, PARAMETERS, SITES, 9)
    assert found["ratio"]["median"] < SECURE_GOAL


def test_answers_are_not_kept_in_memory(both: Both) -> None:
    found: Any = memory(both, SITES, 40_000_000, 1)
    assert found["growth_mb"]["median"] < 40 + 0.064 * SITES


def test_the_published_figures_reach_the_goals_and_the_page_is_made_from_them() -> None:
    result = json.loads((RESULTS / "transport.json").read_text())
    assert (ROOT / "benchmarks" / "TRANSPORT.md").read_text(encoding="utf-8") == page(result)
    found = result["found"]
    assert (found["sites"], found["parameters"]) == (5, 1_000_000)
    assert found["plain"]["ratio"]["upper"] <= GOAL
    assert found["secure"]["ratio"]["upper"] <= SECURE_GOAL
    for one in found["memory"]:
        assert one["growth_mb"]["upper"] <= one["answer_mb"] + 0.064 * one["sites"]
