"""What is printed for people: folded beside its label, and no line ends in blanks."""

from collections.abc import Callable
from typing import Any

import pytest

from consilia import api
from consilia.cli.output import beside, console
from consilia.core.errors import PlanError

Call = Callable[..., Any]


def test_a_long_error_is_folded_and_no_line_ends_in_blanks(
    call: Call, heart: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise PlanError.of("somebody", needs="short", got="word " * 40, hint="Do one thing\nDo another ")

    monkeypatch.setattr(api, "run", fail)
    lines = call("run", heart).err.splitlines()
    assert "  do     Do one thing" in lines
    assert "         Do another" in lines
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line != line.rstrip()] == []


def test_a_word_longer_than_the_line_is_cut_into_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    beside(console(), "digest  ", "f" * 64)
    assert capsys.readouterr().out == f"digest  {'f' * 32}\n        {'f' * 32}\n"
