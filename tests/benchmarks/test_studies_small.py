"""Every accuracy study still runs and its table still renders; README.md says what the result files say."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.study import Study, main, read

from benchmarks import lidc, mnist_figure, mnist_noniid, mnist_prior, pneumonia, readme, scores, tables

SOURCES = {"mnist": mnist_noniid.source, "lidc": lidc.source, "pneumonia": pneumonia.source}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)  # a study sets it for its own process


@pytest.mark.parametrize("study", readme.STUDIES, ids=lambda study: study.name)
def test_small_mode(study: Study, tmp_path: Path) -> None:
    source = SOURCES.get(study.name.partition("_")[0])
    if source is not None and source() is None:
        pytest.skip("its data are not here: set CONSILIA_SHARED_DATA to their folder")
    main(study, ["--small", "--out", str(tmp_path / "result.json")])
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["made"]["command"] == f"python -m benchmarks.{study.name} --small"
    assert len({case["name"] for case in result["cases"]}) == len(result["cases"])
    assert all(0 <= run["accuracy"] <= 1 for case in result["cases"] for run in case["runs"])
    text = study.section(result)
    assert text.startswith("##")
    assert "None" not in text


def test_the_readme_is_written_from_the_results() -> None:
    assert readme.PLACE.read_text() == readme.text(), "run: python -m benchmarks.readme"


@pytest.mark.parametrize("study", readme.STUDIES, ids=lambda study: study.name)
def test_a_kept_result_is_a_full_one(study: Study) -> None:
    result = read(study.name)
    assert result is not None, f"run: python -m benchmarks.{study.name}"
    assert "--small" not in result["made"]["command"]
    assert result["made"]["changed_since"] == [], "made from code that no commit holds"


def test_means_and_their_intervals() -> None:
    found = tables.mean([1.0, 2.0, 3.0])
    assert found.value == 2.0
    assert found.half == pytest.approx(4.302653 / 3**0.5)
    assert tables.percent([0.8, 0.8]) == "80.00 ± 0.00"
    assert tables.share([0.785, 0.785]) == ".785 ± .000"
    assert tables.points([-0.01, -0.01]) == "-1.00 ± 0.00"


def test_area_under_the_curve_counts_pairs() -> None:
    rng = np.random.default_rng(1)
    found, positive = rng.integers(0, 20, 60).astype(np.float64), rng.random(60) < 0.4  # ties are certain
    pairs = found[positive][:, None] - found[~positive][None]
    assert scores.auc(found, positive) == pytest.approx(((pairs > 0) + 0.5 * (pairs == 0)).mean())


def test_lidc_rows_of_no_clear_call_are_left_out(tmp_path: Path) -> None:
    place = lidc.source()
    if place is None:
        pytest.skip("the annotations are not here: set CONSILIA_SHARED_DATA to their folder")
    lines = lidc.prepare(place, tmp_path).read_text().splitlines()
    assert len(lines) == 1 + 4253
    assert {line.rpartition(",")[2] for line in lines[1:]} == {"benign", "malignant"}


def test_the_mnist_figure_shows_its_curve_beside_the_ceiling(tmp_path: Path) -> None:
    def case(epsilon: str, *found: float) -> dict[str, Any]:
        return {"labels": {"epsilon": epsilon}, "runs": [{"accuracy": accuracy} for accuracy in found]}

    cnn = {"cases": [case("none", 0.99), case("3", 0.97, 0.98), case("0.1", 0.7, 0.8)]}
    first, second = tmp_path / "one.svg", tmp_path / "two.svg"
    mnist_figure.draw(cnn, None, None, first)
    mnist_figure.draw(cnn, None, None, second)
    assert first.read_bytes() == second.read_bytes()
    assert "published as a" in first.read_text()
    mnist_figure.draw(cnn, None, {"cases": [case("3", 0.98, 0.99)]}, second)
    assert first.read_bytes() != second.read_bytes()
    assert mnist_prior.LABEL not in second.read_text()
    mnist_figure.draw(cnn, {"cases": [case("3", 0.98, 0.99)]}, None, second)
    assert mnist_prior.LABEL in second.read_text()
