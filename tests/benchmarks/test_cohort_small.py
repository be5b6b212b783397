"""The cohort benchmark in small: together is clearly faster, gives the same results, and a slow way would be seen."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import benchmarks.timing.cohort as timing
import pytest
import torch
from benchmarks.cohort import RUNS, WORKS, page
from benchmarks.study import RESULTS, ROOT
from benchmarks.timing.cohort import Rounds, ledgers, training_part, whole_rounds


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("CONSILIA_HOME", str(tmp_path / "home"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", ["logistic 16-2, batch 10", "MLP 22-64-2, batch 10"])
def test_whole_rounds_are_three_times_faster(name: str, tmp_path: Path) -> None:
    run = Rounds(RUNS[name].model, RUNS[name].batches, sites=120, asked=60)
    found: Any = whole_rounds(run, tmp_path, pairs=5)
    assert found["faster_cpu"]["median"] > 3.0


@pytest.mark.parametrize("name", list(WORKS))
def test_the_training_part_is_faster_and_the_same(name: str) -> None:
    found: Any = training_part("logistic", WORKS[name], sites=60, pairs=5)
    assert found["faster_cpu"]["median"] > 3.0
    assert found["results_apart"] < 1e-6 < 1e-3 < found["results_moved"]


def test_a_way_that_is_no_faster_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "train_together", timing._one_by_one)
    found: Any = training_part("logistic", WORKS["batch 10"], sites=20, pairs=7)
    assert 0.5 < found["faster_cpu"]["median"] < 2.0


def test_ledgers_are_all_written_either_way(tmp_path: Path) -> None:
    found: Any = ledgers(tmp_path, sites=8, pairs=2, writers=4)
    assert found["durable_commits_a_round"] == 16
    assert found["together_wall_ms"]["median"] > 0


def test_the_page_is_that_of_the_result() -> None:
    result = json.loads((RESULTS / "cohort.json").read_text())
    assert (ROOT / "benchmarks" / "COHORT.md").read_text(encoding="utf-8") == page(result)
