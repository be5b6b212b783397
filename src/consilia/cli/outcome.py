"""What a finished run prints: a table of sites, the claim, and where everything lies."""

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from consilia.cli.output import console
from consilia.plan.facts import Facts
from consilia.report.card import claim, verdict_of
from consilia.report.numbers import HIDDEN_BY_SUM, counted, duration, plain, share, size

BAR = 20


def show(summary: Mapping[str, Any], facts: Facts) -> None:
    """Print the outcome of a run."""
    terminal = console()
    terminal.print(_sites(summary, facts))
    terminal.print()
    terminal.print(_claim(facts))
    terminal.print()
    warnings = len(facts["warnings"])
    notes = [("report", str(summary["report"] or "none")), ("work", _work(summary))]
    if warnings:
        notes.append(("card", f"{counted(warnings, 'warning')}: read them on the report's privacy card"))
    for label, value in notes:
        terminal.print(Text.assemble((f"{label:<8}", "dim"), value), soft_wrap=True)


def _claim(facts: Facts) -> Text:
    style = {"private": "bold green", "open": "bold", "not-private": "bold red"}[verdict_of(facts)]
    epsilon, stop, rest = claim(facts).partition(" at " if verdict_of(facts) == "private" else ":")
    return Text.assemble((epsilon, style), stop, rest)


def _sites(summary: Mapping[str, Any], facts: Facts) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False, show_edge=False)
    table.add_column("site", overflow="fold")
    about = "\u2248 " if facts["metrics"] == "charged" else ""  # noised: the warnings say by how much
    trained = "patients" if facts["unit"] == "patient" else "training rows"
    for title in (trained, f"{about}test rows", f"{about}accuracy"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", width=BAR)
    summed = facts["secure"] is not None
    for site in facts["sites"]:
        score = summary["per_site"].get(site["name"])
        known = score if isinstance(score, Mapping) else {}
        shown = ("", "") if summed else (plain(known.get("n")), share(known.get("accuracy")))
        table.add_row(site["name"], plain(site["count"]), *shown, _bar(known.get("accuracy")))
    if len(facts["sites"]) == 1:
        return table
    table.add_section()
    total = summary["accuracy"]
    table.add_row(Text("all rows", style="bold"), "", "", Text(share(total), style="bold"), _bar(total))
    if summed:
        table.caption, table.caption_justify = f"Each site's own figures are {HIDDEN_BY_SUM}; it keeps them.", "left"
        return table
    table.add_row("mean over sites", "", "", share(summary["accuracy_mean_over_sites"]))
    table.add_row("variance", "", "", *_variance(summary["accuracy_variance"]))
    return table


def _bar(value: object) -> ProgressBar | str:
    if not isinstance(value, int | float):
        return ""
    return ProgressBar(1.0, float(value), width=BAR, complete_style="cyan", finished_style="cyan")


def _variance(value: object) -> tuple[str, ...]:
    if not isinstance(value, int | float):
        return ("hidden",)
    return f"{value:.2g}", f"(\u00b1 {100 * value**0.5:.1f} points)"


def _work(summary: Mapping[str, Any]) -> str:
    moved = f"{size(summary['bytes_up'])} up, {size(summary['bytes_down'])} down"
    stopped = f"  {summary['status']}: {summary['reason']}" if summary.get("reason") else ""
    skipped = f" ({summary['skipped']} skipped)" if summary.get("skipped") else ""
    return f"{counted(summary['rounds'], 'round')}{skipped}  {moved}  {duration(summary['seconds'])}{stopped}"
