"""What follows from a plan, for a terminal of 80 columns."""

from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from consilia.cli.output import console
from consilia.plan.facts import Facts
from consilia.plan.forecast import Forecast, hours
from consilia.plan.run_plan import ADVERSARIES
from consilia.report.card import bounds, build, claim
from consilia.report.mechanism import mechanism
from consilia.report.numbers import counted, duration, plain, size
from consilia.report.phases import in_turn
from consilia.report.protections import TITLE, protections
from consilia.report.secure import MODES, price
from consilia.report.stacking import stack_noise, stack_parts

SHOWN = 8


def show(path: str, facts: Facts, ahead: Forecast, notes: Mapping[str, list[str]], link: float) -> None:
    """Print sites, schedule, noise, bytes, epsilon for each adversary, what protects and what leaves, warnings, and notes."""
    terminal = console()
    card = build(facts, {})
    terminal.print(Text.assemble((path, "bold"), " can run\n"), soft_wrap=True)
    terminal.print(
        _grid([*_plan(facts), *_noise(facts), *_secure(facts), *_bytes(ahead, link), ("claim", claim(facts))])
    )
    if card.verdict == "private":
        terminal.print(Text("\nEpsilon of each site", style="bold"))
        terminal.print(_bounds(facts))
    terminal.print(Text(f"\n{TITLE}, and what it does not", style="bold"))
    terminal.print(_grid([(row.label.lower(), f"{row.value}; {row.note}") for row in protections(facts).rows]))
    leaves = next(group for group in card.groups if group.title == "What leaves a site")
    terminal.print(Text("\nWhat leaves a site", style="bold"))
    terminal.print(
        _grid([(row.label.lower(), row.value + (f" ({row.note})" if row.note else "")) for row in leaves.rows])
    )
    if facts["warnings"]:
        terminal.print(Text("\nWarnings", style="bold yellow"))
        terminal.print(_grid([("\u2022", warning) for warning in facts["warnings"]]))
    noted = [(site, note) for site, found in notes.items() for note in found]
    if noted:
        terminal.print(Text("\nNotes on training rows, for the holder's own screen", style="bold"))
        terminal.print(_grid(noted[:SHOWN]))
        if len(noted) > SHOWN:
            terminal.print(f"and {len(noted) - SHOWN} more: consilia check {path} --json", markup=False)


def _plan(facts: Facts) -> list[tuple[str, str]]:
    sites, cohort = facts["sites"], facts["cohort"]
    turns = max((site["participations"] for site in sites), default=0)
    steps = sorted({phase["steps"] for site in sites for phase in site["phases"]})
    shown = ", ".join(f"{site['name']} {plain(site['count'])}" for site in sites[:SHOWN])
    more = f" and {len(sites) - SHOWN} more" if len(sites) > SHOWN else ""
    rates = in_turn(facts, "sampling_rate")
    rate = f" at rate {rates}" if facts["batch"] == "poisson" else ""
    units = "patients" if facts["unit"] == "patient" else "training rows"
    span = counted(steps[0], "step") if len(steps) == 1 else f"{plain(steps[0])} to {counted(steps[-1], 'step')}"
    work = f"{facts['algorithm']}, {facts['batch']} batches{rate}, {span} a round"
    if facts["stack"] is not None:
        work = f"each site answers once: {stack_parts(facts['stack'])}"
    schedule = f"{counted(facts['rounds'], 'round')} of {cohort} sites, each at most {plain(turns)} times"
    if (apart := facts.get("asynchronous")) is not None:
        schedule = (
            f"{apart['mode']}: {counted(facts['rounds'], 'round')} of the {cohort} sites that are ready first, none waits for "
            f"others; updates up to {counted(apart['max_staleness'], 'step')} behind; a site begins at most {plain(turns)}"
        )
    return [
        ("sites", f"{len(sites)} with registered {units}: {shown}{more}"),
        ("schedule", schedule),
        ("local work", work),
        ("model", f"{facts['model']}, {plain(facts['parameters'])} numbers an update"),
        *_more(facts),
    ]


def _more(facts: Facts) -> list[tuple[str, str]]:
    """Return the card's lines on what only some plans have."""
    shown = ("Phases", "Views", "Starts from", "Count within the clip norm")
    rows = [row for row in mechanism(facts).rows if row.label in shown]
    return [(row.label.lower(), f"{row.value}, {row.note}" if row.note else row.value) for row in rows]


def _noise(facts: Facts) -> list[tuple[str, str]]:
    if facts["unit"] == "none":
        return []
    if facts["stack"] is not None:
        drawn = f"{facts['stack']['noise']}, drawn at each site, {stack_noise(facts['stack'])}"
        return [("noise", drawn), ("accountant", facts["accountant"])]
    where = {"site": "at each site", "server": "at the coordinator", "distributed": "in shares at the sites"}[
        facts["noise"]
    ]
    multipliers, norms = in_turn(facts, "noise_multiplier"), in_turn(facts, "clip_norm")
    noise = f"multiplier {multipliers}, drawn {where}; clip norm {norms}"
    noise += "" if facts["clipping"] == "flat" else f", {facts['clipping']} clipping"
    return [("noise", noise), ("accountant", facts["accountant"])]


def _secure(facts: Facts) -> list[tuple[str, str]]:
    secure = facts["secure"]
    if secure is None:
        return []
    few = f"{secure['mode']}: no sum with fewer than {secure['fewest']} of {secure['cohort']} answers"
    told = [("secure sum", f"{few}; {MODES[secure['mode']]}")]
    return told + ([("spare noise", ", ".join(price(secure)))] if secure["distributed"] else [])


def _bytes(ahead: Forecast, link: float) -> list[tuple[str, str]]:
    return [
        ("bytes", f"{size(ahead['up_per_round'])} up, {size(ahead['down_per_round'])} down a round; "
                  f"{size(ahead['up'] + ahead['down'])} in all"),
        ("link", f"{duration(3600 * hours(ahead, link))} of transfer for the busiest site at {plain(link)} Mbit/s"),
    ]  # fmt: skip


def _bounds(facts: Facts) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 0, 0, 2))
    table.add_column("against", overflow="fold")
    for who in ADVERSARIES:
        table.add_column(who.replace("+", " +\n"), justify="right", vertical="top")
    for row in bounds(facts):
        more = f" and {len(row.sites) - 4} more" if len(row.sites) > 4 else ""
        table.add_row(", ".join(row.sites[:4]) + more, *row.epsilon)
    return table


def _grid(rows: list[tuple[str, str]]) -> Table:
    grid = Table.grid(padding=(0, 0, 0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in rows:
        grid.add_row(label, Text(value))
    return grid
