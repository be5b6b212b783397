"""A plan before a steward, on a terminal of 80 columns."""

from collections.abc import Sequence

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from consilia.plan.clauses import Clause
from consilia.report.consent import Summary

_STYLES = {"accepted": "bold green", "waiting": "bold yellow", "refused": "bold red"}


def show(terminal: Console, told: Summary) -> None:
    """Print all that a steward decides on."""
    terminal.print(Text.assemble((told.answer, _STYLES[told.answer]), f": {told.headline}"))
    terminal.print(_grid([("run", told.run), ("digest", told.digest), ("claim", told.claim)]))
    for group in told.groups:
        terminal.print()
        terminal.print(Text(group.title, style="bold"))
        terminal.print(
            _grid([(row.label.lower(), row.value + (f" ({row.note})" if row.note else "")) for row in group.rows])
        )
    if told.warnings:
        terminal.print(Text("\nWarnings", style="bold yellow"))
        terminal.print(_grid([("\u2022", warning) for warning in told.warnings]))
    terminal.print()
    terminal.print(clauses(told.clauses))


def clauses(found: Sequence[Clause]) -> Group:
    """Return the policy's clauses beside what a plan asks, those that it breaks first."""
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for title in ("", "policy key", "allows", "the plan asks"):
        table.add_column(title, overflow="fold")
    for clause in sorted(found, key=lambda clause: clause.holds):
        mark = Text("ok", style="green") if clause.holds else Text("no", style="bold red")
        table.add_row(mark, Text(clause.key), Text(clause.allows), Text(clause.asks))
    return Group(Text("The policy, clause by clause", style="bold"), table)


def _grid(rows: Sequence[tuple[str, str]]) -> Table:
    grid = Table.grid(padding=(0, 0, 0, 2))
    grid.add_column(style="dim", max_width=24)
    grid.add_column(overflow="fold")
    for label, value in rows:
        grid.add_row(label, Text(value))
    return grid
