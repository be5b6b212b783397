"""Progress: a few plain lines where stderr is no terminal, a live bar where it is one."""

import logging
from typing import Any

import pytest
from rich.console import Console

from consilia.cli.progress import Progress
from consilia.cli.site_log import warnings_once


def record(number: int, **changes: object) -> dict[str, Any]:
    values: dict[str, Any] = {
        "round": number, "status": "counted", "accuracy": 0.5 + number / 1000, "worst_site": "Bern [red]",
        "worst_accuracy": 0.4, "epsilon_spent": number / 200, "epsilon_budget": 1.0, "bytes_up": 500, "bytes_down": 1500,
        "seconds": 0.5,
    }  # fmt: skip
    return values | changes


def test_few_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(200) as progress:
        for number in range(1, 201):
            progress(record(number))
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert 10 <= len(lines) <= 12
    assert lines[-1] == "round 200 of 200  accuracy 70.0 %  worst Bern [red] 40.0 %  epsilon 1 of 1  400 kB"


def test_resumed_runs_count_what_was_there(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(20, done=18, moved=36_000) as progress:
        progress(record(19, status="skipped", accuracy=None, per_site={}))
        progress(record(20))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "round 19 of 20  epsilon 0.095 of 1  38 kB  1 skipped"
    assert lines[1].endswith("40 kB  1 skipped")


def test_live_bar_shows_round_and_time_left() -> None:
    ticks = iter([0.0, 5.0, 20.0, 30.0])
    progress = Progress(4, clock=lambda: next(ticks))
    terminal = Console(width=80, force_terminal=True, color_system=None, record=True)
    terminal.print(progress._draw())
    progress(record(1, seconds=10.0))
    terminal.print(progress._draw())
    text = terminal.export_text()
    assert "reading plan and data" in text
    assert "round 1 of 4" in text
    assert "60 s left" in text  # the first round began at 10 s and was done at 30 s; 3 to go
    assert max(map(len, text.splitlines())) <= 80


def test_a_site_that_fails_every_round_says_so_once(capsys: pytest.CaptureFixture[str]) -> None:
    site_log = logging.getLogger("consilia.site")
    with warnings_once():
        for number in range(5):
            try:
                raise ValueError("no [such] row")
            except ValueError:
                site_log.exception("site %s failed in round %d", "Bern", number)
            site_log.warning("site %s refused round %d: %s", "Basel", number, "budget")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "site Bern failed in round 0: ValueError: no [such] row"
    assert [line for line in lines if "Bern" in line] == lines[:1]
    assert "Traceback" not in "".join(lines)


def test_hidden_is_said_and_not_yet_evaluated_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(2) as progress:
        progress(record(1, accuracy=None, per_site={}))
        progress(record(2, accuracy=None, per_site={"Bern": "hidden"}))
    first, second = capsys.readouterr().err.splitlines()
    assert "accuracy" not in first
    assert "accuracy hidden" in second
