"""The speed benchmark in small: its ratios within generous bounds, and that it would see a run that is slow or grows."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.study import RESULTS, ROOT
from benchmarks.timing import page
from benchmarks.timing.budget import budget_checks
from benchmarks.timing.ledger import ledger_cost
from benchmarks.timing.memory import memory
from benchmarks.timing.paired import compare
from benchmarks.timing.private import private_steps
from benchmarks.timing.workloads import CNN, LEDGER, LINEAR

from consilia.rounds.coordinator import Coordinator
from consilia.rounds.learner import TorchLearner


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("CONSILIA_HOME", str(tmp_path / "home"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_a_small_linear_run_costs_little_more_than_a_bare_loop(tmp_path: Path) -> None:
    found: Any = compare(LINEAR.sized(40, 20), tmp_path, rounds=20)
    assert found["models_apart"] < 1e-6 < found["model_moved"]  # the same arithmetic on both sides
    assert 0.7 < found["control_ratio_cpu"]["median"] < 1.4
    assert found["ratio_cpu"]["median"] < 2.0


def test_a_small_cnn_run_costs_little_more_than_a_bare_loop(tmp_path: Path) -> None:
    found: Any = compare(CNN.sized(6, 3), tmp_path, rounds=3)
    assert found["parameters"] == 1_626_442
    assert found["models_apart"] < 1e-4 < found["model_moved"]
    assert found["ratio_cpu"]["median"] < 2.0


def test_work_done_thrice_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = TorchLearner.train

    def thrice(self: TorchLearner, *arguments: Any) -> Any:
        for _ in range(2):
            train(self, *arguments)
        return train(self, *arguments)

    monkeypatch.setattr(TorchLearner, "train", thrice)
    found: Any = compare(LINEAR.sized(40, 7), tmp_path, rounds=20)  # too few to train together
    assert found["ratio_cpu"]["median"] > 2.0


def test_memory_and_open_files_stay_flat(tmp_path: Path) -> None:
    found: Any = memory(LINEAR.sized(40, 20), tmp_path, rounds=60, every=20)
    first, last = found["seen"][0], found["seen"][-1]
    assert last["resident_mb"] - first["resident_mb"] < 2.0
    assert found["open_files_change"] == 0


def test_memory_that_grows_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, count = [], Coordinator._count

    def keep(self: Coordinator, *arguments: Any) -> None:
        kept.append(np.ones(1 << 19))  # 4 MB a round
        count(self, *arguments)

    monkeypatch.setattr(Coordinator, "_count", keep)
    found: Any = memory(LINEAR.sized(40, 20), tmp_path, rounds=60, every=20)
    first, last = found["seen"][0], found["seen"][-1]
    assert last["resident_mb"] - first["resident_mb"] > 80.0


def test_the_budget_check_does_not_show_in_a_round(tmp_path: Path) -> None:
    found: Any = budget_checks(tmp_path, 120)
    assert found["share_of_a_rounds_bare_steps"] < 0.1


def test_the_ledgers_cost_is_told_apart(tmp_path: Path) -> None:
    found: Any = ledger_cost(LEDGER, tmp_path, rounds=4)
    parts = [found[f"{name}_ms"]["wall"]["median"] for name in ("reserve", "commit", "commit_round")]
    assert all(part > 0 for part in parts)
    assert found["ledger_and_journal_ms"]["wall"]["median"] > max(parts)


def test_private_steps_are_compared() -> None:
    found: Any = private_steps(2, names=("logistic",))
    assert found["logistic"]["ratio_cpu"]["median"] > 0


def test_the_page_is_made_from_the_results() -> None:
    parts = json.loads((RESULTS / "speed.json").read_text())["parts"]
    assert (ROOT / "benchmarks" / "SPEED.md").read_text(encoding="utf-8") == page.section(parts)
