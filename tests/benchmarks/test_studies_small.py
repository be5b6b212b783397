"""Every accuracy study still runs and its table still renders; README.md says what the result files say."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from benchmarks.study import Study, main, read

from benchmarks import mnist_noniid, readme, tables


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)  # a study sets it for its own process


@pytest.mark.parametrize("study", readme.STUDIES, ids=lambda study: study.name)
def test_small_mode(study: Study, tmp_path: Path) -> None:
    if study.name.startswith("mnist") and mnist_noniid.source() is None:
        pytest.skip("mnist.npz is not here: set CONSILIA_SHARED_DATA to its folder")
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
    if result is None:
        pytest.skip("not run yet")
    assert "--small" not in result["made"]["command"]
    assert result["made"]["changed_since"] == [], "made from code that no commit holds"


def test_means_and_their_intervals() -> None:
    found = tables.mean([1.0, 2.0, 3.0])
    assert found.value == 2.0
    assert found.half == pytest.approx(4.302653 / 3**0.5)
    assert tables.percent([0.8, 0.8]) == "80.00 ± 0.00"
    assert tables.share([0.785, 0.785]) == ".785 ± .000"
    assert tables.points([-0.01, -0.01]) == "-1.00 ± 0.00"
