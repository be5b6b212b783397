"""The command line in this process: exit code, stdout and stderr of one call."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from consilia.cli.main import main

PLANS = Path(__file__).resolve().parents[2] / "examples" / "plans"


class Outcome(NamedTuple):
    """What a call left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def problems(self) -> list[dict[str, str]]:
        """The problems of an error document, whose exit code must be the process's."""
        error = self.document["error"]
        assert error["exit_code"] == self.code
        return list(error["problems"])


Call = Callable[..., Outcome]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run a command in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("CONSILIA_HOME", raising=False)

    def run(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = main(arguments)
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture
def heart() -> str:
    """Path of the plan that `make run` runs."""
    return str(PLANS / "heart.toml")
