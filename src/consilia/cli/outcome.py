"""What a finished run prints: a table of sites, the claim, and where everything lies."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from consilia.cli.output import console
from consilia.plan.facts import Facts
from consilia.report.card import claim, verdict_of
from consilia.report.numbers import duration, plain, share, size


def show(summary: Mapping[str, Any], facts: Facts) -> None:
    """Print the outcome of a run."""
    terminal = console()
    terminal.print(_sites(summary, facts))
    terminal.print(Text(_variance(summary), style="dim"))
    terminal.print()
    terminal.print(_claim(facts))
    for warning in summary["warnings"]:
        terminal.print(Text(f"Warning: {warning}", style="yellow"))
    terminal.print(Text(_work(summary), style="dim"))
    terminal.print(Text("report  ", style="dim") + Text(str(summary["report"] or "none"), style="bold"), soft_wrap=True)


def _claim(facts: Facts) -> Text:
    style = {"private": "bold green", "open": "bold", "not-private": "bold red"}[verdict_of(facts)]
    epsilon, stop, rest = claim(facts).partition(" at " if verdict_of(facts) == "private" else ":")
    return Text.assemble((epsilon, style), stop, rest)


def _sites(summary: Mapping[str, Any], facts: Facts) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("site")
    for title in ("training rows", "test rows", "accuracy"):
        table.add_column(title, justify="right")
    for site in facts["sites"]:
        score = summary["per_site"].get(site["name"])
        known = score if isinstance(score, Mapping) else {}
        table.add_row(site["name"], plain(site["count"]), plain(known.get("n")), share(known.get("accuracy")))
    table.add_section()
    table.add_row("all rows", "", "", Text(share(summary["accuracy"]), style="bold"))
    table.add_row("mean over sites", "", "", share(summary["accuracy_mean_over_sites"]))
    return table


def _variance(summary: Mapping[str, Any]) -> str:
    value = summary["accuracy_variance"]
    if not isinstance(value, int | float):
        return "variance between sites: hidden"
    return f"variance between sites {value:.2g} (standard deviation {100 * value**0.5:.1f} points)"


def _work(summary: Mapping[str, Any]) -> str:
    moved = f"{size(summary['bytes_up'])} up, {size(summary['bytes_down'])} down"
    stopped = f"  stopped: {summary['reason']}" if summary.get("reason") else ""
    return f"{summary['rounds']} rounds  {moved}  {duration(summary['seconds'])}{stopped}"
