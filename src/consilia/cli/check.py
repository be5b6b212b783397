"""`consilia check`: every problem of a plan at once, or what follows from it."""

from typing import TYPE_CHECKING

from consilia.cli import options, output

if TYPE_CHECKING:
    from rich.console import Console

    from consilia.plan.facts import Facts, Forecast

LINK = 10e6 / 8  # bytes a second of the 10 Mbit/s that a hospital may have


def check(plan: options.PlanFile, set: options.Overrides = None, json: options.Json = False) -> None:
    """Check a plan and its data: all problems at once, or schedule, noise, epsilon and bytes."""
    from consilia import api
    from consilia.plan.facts import facts, forecast

    checked = api.check(api.load(plan, set=list(set or [])))
    found, bytes_ahead = facts(checked), forecast(checked)
    if json:
        output.emit({**found, "forecast": bytes_ahead})
    else:
        _show(str(plan), found, bytes_ahead)


def _show(path: str, found: "Facts", ahead: "Forecast") -> None:
    from rich.table import Table
    from rich.text import Text

    from consilia.report.card import build, claim

    terminal = output.console()
    terminal.print(Text.assemble((path, "bold"), " can run.\n"), soft_wrap=True)
    grid = Table.grid(padding=(0, 3))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in [*_lines(found, ahead), ("claim", claim(found))]:
        grid.add_row(label, Text(value))
    terminal.print(grid)
    card = build(found, {})
    if card.verdict == "private":
        _show_bounds(terminal, found)
    leaves = next(group for group in card.groups if group.title == "What leaves a site")
    terminal.print(Text("\nWhat leaves a site", style="bold"))
    grid = Table.grid(padding=(0, 3))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for row in leaves.rows:
        grid.add_row(f"  {row.label.lower()}", Text(row.value + (f" ({row.note})" if row.note else "")))
    terminal.print(grid)
    for warning in found["warnings"]:
        terminal.print(Text(f"\nWarning: {warning}", style="yellow"))


def _lines(found: "Facts", ahead: "Forecast") -> list[tuple[str, str]]:
    from consilia.report.numbers import duration, plain, size

    sites = found["sites"]
    turns = max((site["participations"] for site in sites), default=0)
    shown = ", ".join(f"{site['name']} {plain(site['count'])}" for site in sites[:8])
    more = f" and {len(sites) - 8} more" if len(sites) > 8 else ""
    steps = max((site["steps"] for site in sites), default=0)
    batch = f"{found['batch']} batches" + (f", rate {found['sampling_rate']:g}" if found["sampling_rate"] else "")
    lines = [
        ("sites", f"{len(sites)}, training rows: {shown}{more}"),
        ("schedule", f"{plain(found['rounds'])} rounds, {found['cohort']} of {len(sites)} sites a round, each at most {plain(turns)} times"),
        ("local work", f"{found['algorithm']}, {batch}, {plain(steps)} step{'s' * (steps != 1)} a round"),
        ("model", f"{plain(found['parameters'])} numbers an update"),
    ]  # fmt: skip
    if found["unit"] != "none":
        lines.append(
            (
                "noise",
                f"multiplier {found['noise_multiplier']:.5g}, drawn at the {found['noise']}, clip norm {plain(found['clip_norm'])}",
            )
        )
        lines.append(("accountant", found["accountant"]))
    a_round = f"{size(ahead['up_per_round'])} up and {size(ahead['down_per_round'])} down a round"
    a_run = f"{size(ahead['up'] + ahead['down'])} a run; {duration(ahead['busiest_site'] / LINK)} at 10 Mbit/s for the busiest site"
    lines.append(("bytes", f"{a_round}, {a_run}"))
    return lines


def _show_bounds(terminal: "Console", found: "Facts") -> None:
    from rich.table import Table
    from rich.text import Text

    from consilia.plan.facts import ADVERSARIES
    from consilia.report.card import bounds

    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("  epsilon against", overflow="fold")
    for who in ADVERSARIES:
        table.add_column(who.replace("+", " +\n"), justify="right")
    for row in bounds(found):
        names = ", ".join(row.sites[:4]) + (f" and {len(row.sites) - 4} more" if len(row.sites) > 4 else "")
        table.add_row(f"  {names}", *row.epsilon)
    terminal.print(Text("\nEpsilon of each site", style="bold"))
    terminal.print(table)
