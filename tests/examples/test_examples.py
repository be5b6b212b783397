"""Every example runs as a newcomer would run it, and says what its docstring promises."""

import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from consilia.plan.load import load

Example = Callable[..., str]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Example:
    """Run one example in an empty folder, with ledgers of its own, and return what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONSILIA_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(str(EXAMPLES))  # as `python examples/x.py` does
    torch.set_num_threads(1)

    def run(name: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found is not None, f"{pattern!r} is not in:\n{text}"
    return float(found[1])


def test_heart(example: Example) -> None:
    text = example("heart.py")
    assert number(r"all rows +(\S+)", text) > 0.7
    assert 2.99 < number(r"epsilon (\S+) at delta 0.001 for one record", text) <= 3.0
    assert Path(text.split("report in ")[1].strip()).is_file()


def test_own_csv(example: Example) -> None:
    text = example("own_csv.py")
    assert number(r"accuracy (\S+) \(noised counts\)", text) > 0.7
    assert number(r"epsilon +(\S+) at delta 1e-05", text) <= 1.0
    assert {path.stem for path in Path("home/sites").glob("*.sqlite")} == {"north", "south", "west"}


def test_compare_epsilon(example: Example) -> None:
    lines = example("compare_epsilon.py", "1").splitlines()
    assert [line.split()[0] for line in lines] == ["epsilon", "1", "3", "none"]
    assert all(0.65 < float(line.split()[1]) < 0.95 for line in lines[1:])


def test_own_model(example: Example) -> None:
    assert number(r"68 parameters, accuracy ([\d.]+), epsilon 3\.000", example("own_model.py")) > 0.65


def test_resume(tmp_path: Path) -> None:
    # A process of its own from the start: the example kills one.
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "resume.py")], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"PATH": "/usr/bin:/bin", "CONSILIA_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "killed after round 20" in done.stdout
    resumed = number(r"resumed at round (\d+), 60 rounds in all", done.stdout)
    assert 21 <= resumed <= 60
    assert number(r"epsilon (\S+), as the plan says", done.stdout) <= 1.0


@pytest.mark.parametrize("path", sorted((EXAMPLES / "plans").glob("*.toml")), ids=lambda path: path.stem)
def test_every_plan_loads(path: Path) -> None:
    assert load(path).run.name == tomllib.loads(path.read_text(encoding="utf-8"))["run"]["name"] == path.stem
