"""`consilia study compare`: one plan under each protection, side by side."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from consilia.cli import options, output

app = typer.Typer(help="Studies on public or synthetic rows; nothing is charged.", no_args_is_help=True)
_COLUMNS = ("accuracy\n%", "epsilon\n", "CPU\nms", "time\nms", "up\n", "down\n", "start\ns")


@app.callback()
def _root() -> None:
    """Make a group of one command a group."""


@app.command("compare")
def compare(
    plan: options.PlanFile,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="The comparison's own folder.")] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", min=1, max=1000, help="Runs a row: run.seed 1 to N.")
    ] = 3,
    set: options.Overrides = None,
    public_rows: Annotated[
        bool, typer.Option("--public-rows", help="Declare that the plan's rows are public or synthetic.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Run a plan in the clear, with DP, under each secure sum: accuracy, time, bytes and what the server sees of each."""
    from consilia.cli.site_log import warnings_once
    from consilia.plan.load import load
    from consilia.study import compare as study

    loaded = load(plan, list(set or []))
    study.require_public(loaded, public_rows)
    if not json:
        output.say(
            "For public or synthetic rows: most runs add no noise, and no ledger of a site is charged.", style="dim"
        )
    with warnings_once():
        folder, document = study.compare(
            loaded, seeds=seeds, public_rows=public_rows, data_folder=Path.cwd(), out=out,
            on_run=lambda title, seed: output.say(f"seed {seed} of {seeds}: {title}"),
        )  # fmt: skip
    files = _write(folder, document)
    if json:
        output.emit(document | {"folder": str(folder)} | files)
    else:
        _show(document, folder, files)


def _write(folder: Path, document: Mapping[str, Any]) -> dict[str, str]:
    import json

    from consilia.report import comparison

    files = {"page": "comparison.html", "figure": "comparison.svg", "numbers": "comparison.json"}
    with _writing(folder):
        (folder / files["page"]).write_text(comparison.page(document), encoding="utf-8")
        (folder / files["figure"]).write_text(comparison.svg(document), encoding="utf-8")
        (folder / files["numbers"]).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return {what: str(folder / name) for what, name in files.items()}


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    from consilia.core.errors import StoreError

    try:
        yield
    except OSError as error:
        raise StoreError.of(f"comparison folder {folder}", needs="room and permission to be written",
                            got=error.strerror or "an error", hint="Its runs are whole; make room") from None  # fmt: skip


def _show(document: Mapping[str, Any], folder: Path, files: Mapping[str, str]) -> None:
    from rich.table import Table
    from rich.text import Text

    from consilia.report import comparison

    terminal, rows = output.console(), comparison.ran(document)
    terminal.print(Text(f"{comparison.runs(document)}\n"))
    numbers = Table(box=None, header_style="dim", padding=(0, 1, 0, 0))
    numbers.add_column("", no_wrap=True)
    for column in _COLUMNS:
        numbers.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        numbers.add_row(*comparison.cells(row))
    terminal.print(numbers)
    terminal.print(Text("CPU, time: a round, all sites together; up, down: a site and round; start: keys", style="dim"))
    _words("What the server sees", [(row["title"], row["sees"]) for row in rows])
    private = [(row["title"], f"epsilon {cell} against {row['against']}") for row in rows
               if row["against"] is not None and (cell := comparison.cells(row)[2])]  # fmt: skip
    if private:
        _words("Epsilon, and against whom; the others have none", private)
    absent = [(row["title"], row["reason"]) for row in document["rows"] if row["reason"]]
    if absent:
        _words("Did not run", absent)
    terminal.print()
    for label, value in (
        ("charged", f"nothing: runs and their own ledgers are in {folder}"),
        ("figure", files["figure"]),
        ("page", files["page"]),
    ):
        terminal.print(Text.assemble((f"{label:<8}", "dim"), value), soft_wrap=True)


def _words(title: str, rows: list[tuple[str, str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    terminal = output.console()
    terminal.print(Text(f"\n{title}", style="bold"))
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, words in rows:
        grid.add_row(label, Text(words))
    terminal.print(grid)
