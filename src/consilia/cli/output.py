"""What commands print: results on stdout, as text or as one JSON document; everything else on stderr."""

import json
import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from consilia.core.errors import ConsiliaError, Problem

if TYPE_CHECKING:
    from rich.console import Console

MOST = 20  # problems that are printed; --json holds them all
_LONGEST = 300  # characters of a word that came from outside
WIDTH = 100  # beyond that lines are hard to read


def emit(document: object) -> None:
    """Print one JSON document; what JSON cannot say (infinity, NaN) becomes null."""
    print(json.dumps(_plain(document), indent=2, ensure_ascii=False, allow_nan=False))


def console(*, stderr: bool = False) -> "Console":
    """Return a terminal of readable width; colours go when it is none."""
    from rich.console import Console

    found = Console(stderr=stderr, highlight=False)
    if found.width > WIDTH:
        found.width = WIDTH
    return found


def show_error(error: ConsiliaError, *, as_json: bool) -> int:
    """Print every problem of an error and return the exit code."""
    if as_json:
        problems = [{"who": p.who, "needs": p.needs, "got": p.got, "hint": p.hint} for p in error.problems]
        emit({"error": {"problems": problems, "exit_code": error.exit_code}})
    else:
        _show_problems(error.problems)
    return error.exit_code


def _show_problems(problems: tuple[Problem, ...]) -> None:
    from rich.text import Text

    terminal = console(stderr=True)
    count = len(problems)
    terminal.print(Text("1 problem" if count == 1 else f"{count} problems", style="bold red"))
    for problem in problems[:MOST]:
        terminal.print()
        terminal.print(Text(_cut(problem.who), style="bold"), soft_wrap=True)
        for label, text in (("needs", problem.needs), ("got", problem.got), ("do", problem.hint)):
            if text:
                beside(terminal, f"  {label:<5}  ", _cut(text))
    if count > MOST:
        terminal.print(f"\nand {count - MOST} more (--json lists them)")


def beside(terminal: "Console", label: str, text: str) -> None:
    """Print a text beside its label, folded within the width that is left; no line ends in blanks."""
    from rich.text import Text

    for line in text.splitlines():
        for part in Text(line).wrap(terminal, max(1, terminal.width - len(label))):
            part.rstrip()
            terminal.print(Text.assemble((label, "dim"), part), soft_wrap=True)
            label = " " * len(label)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def say(message: str, *, style: str = "") -> None:
    """Print a line on stderr."""
    from rich.text import Text

    console(stderr=True).print(Text(message, style=style), soft_wrap=True)


def close_quietly() -> None:
    """Nobody reads stdout any more (`consilia ... | head`): let what is buffered go without a word."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
