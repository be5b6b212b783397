"""How `consilia status` looks: sites and runs, at 80 columns."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from consilia.cli.output import beside, console
from consilia.report.numbers import duration, share, size

_STYLES = {
    "done": "green", "running": "cyan", "queued": "", "stopped": "yellow", "failed": "bold red", "accepted": "green",
    "waiting": "yellow", "refused": "bold red", "silent": "dim", "unasked": "dim",
}  # fmt: skip
_SOON = 30  # days


def show(found: Mapping[str, Any]) -> None:
    """Print who is connected and where every run stands."""
    terminal = console()
    here = sum(site["connected"] for site in found["sites"])
    terminal.print(Text.assemble(
        (found["consortium"], "bold"), f"  {here} of {len(found['sites'])} sites connected, up {duration(found['uptime'])}, ",
        f"Consilia {found['version']}, roster version {found['roster']}",
    ))  # fmt: skip
    terminal.print()
    terminal.print(_sites(found["sites"]))
    terminal.print()
    if not found["runs"]:
        terminal.print("No run yet: consilia submit PLAN", style="dim")
        return
    _show_runs(terminal, found["runs"])


def show_run(run: Mapping[str, Any]) -> None:
    """Print one run with every site's answer."""
    terminal = console()
    head = Text.assemble(
        (run["run"], "bold"), "  ", (run["status"], _STYLES.get(run["status"], "")), "  ", _rounds(run)
    )
    head.rstrip()
    terminal.print(head)
    facts = [
        ("plan", run["digest"]), ("submitted", f"{run['submitted']} by {run['by']}"), ("reason", run["reason"]),
        ("epsilon", None if run["epsilon"] is None else f"{run['epsilon']:.4g} for the whole run"),
        ("accuracy", None if run["accuracy"] is None else share(run["accuracy"])),
    ]  # fmt: skip
    for label, value in facts:
        if value:
            beside(terminal, f"{label:<11}", str(value))
    if run["sites"]:
        terminal.print()
        terminal.print(_answers(run))


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False, show_edge=False)
    for place, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=place == 0)
    return table


def _sites(sites: list[dict[str, Any]]) -> Table:
    table = _table("site", "", "since", "received", "sent", "certificate")
    for site in sites:
        counts = site["counts"] or {}
        here = (
            Text("connected", "green")
            if site["connected"]
            else Text("not seen yet" if site["counts"] is None else "away", "dim")
        )
        days = site["certificate_days"]
        table.add_row(
            site["name"], here, "" if site["seconds"] is None else duration(site["seconds"]), size(counts.get("up", 0)),
            size(counts.get("down", 0)), Text(f"{days} days", "yellow" if days < _SOON else ""),
        )  # fmt: skip
    return table


def _show_runs(terminal: Console, runs: list[dict[str, Any]]) -> None:
    """Print a line for each run, and below it, in the full width, why it stands where it does."""
    head = ("run", "status", "rounds", "accuracy")
    rows = [(run["run"], run["status"], _rounds(run), share(run["accuracy"], missing="")) for run in runs]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    terminal.print(Text(_line(head, widths), "dim"))
    terminal.print(Text("\u2500" * min(terminal.width, sum(widths) + 2 * len(widths) - 2), "dim"))
    for run, cells in zip(runs, rows, strict=True):
        line = Text(_line(cells, widths))
        line.stylize(_STYLES.get(run["status"], ""), widths[0] + 2, widths[0] + 2 + widths[1])
        terminal.print(line, soft_wrap=True)
        if why := _first(run["reason"]) or _waits(run):
            beside(terminal, "  ", why)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _first(reason: str | None) -> str:
    """Return a reason's first line; where each site has one of its own, the run's page has them."""
    first, _, rest = (reason or "").partition("\n")
    return first.rstrip(": ") + (" (consilia status RUN says which)" if rest else "")


def _answers(run: Mapping[str, Any]) -> Table:
    table = _table("site", "answer", "why, or what its last round came to")
    last = run["last"] or {}
    for site in run["sites"]:
        dropped = (last.get("dropped") or {}).get(site["name"])
        counted = "counted" if site["name"] in (last.get("answered") or ()) else ""
        table.add_row(
            site["name"], Text(site["answer"], _STYLES.get(site["answer"], "")), site["why"] or dropped or counted
        )
    return table


def _rounds(run: Mapping[str, Any]) -> str:
    return f"{run['round']} of {run['rounds']}" if run["rounds"] else str(run["round"] or "")


def _waits(run: Mapping[str, Any]) -> str:
    sites = run["sites"] or []
    waiting = [site["name"] for site in sites if site["answer"] == "waiting"]
    silent = [site["name"] for site in sites if site["answer"] in ("silent", "unasked")]
    if waiting:
        return f"waits for a steward at {', '.join(waiting)}"
    return f"waits for {', '.join(silent)}" if silent and run["status"] == "queued" else ""
