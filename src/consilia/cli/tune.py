"""`consilia tune`: search hyper-parameters, charged as a whole, or free of charge on public rows."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consilia.cli import options, output

if TYPE_CHECKING:
    from consilia.plan.schema import Plan
    from consilia.study.offer import Offer
    from consilia.study.search import Trial
    from consilia.study.tune_file import TuneFile


def tune(
    plan: options.PlanFile,
    search: Annotated[Path, typer.Option("--search", metavar="TUNE", help="What to try: a tune file.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="PATH", help="The search's folder; with --public the plan to write.")
    ] = None,
    set: options.Overrides = None,
    check: Annotated[bool, typer.Option("--check", help="Say what it would cost, and charge nothing.")] = False,
    public: Annotated[
        bool, typer.Option("--public", help="Search on the tune file's public rows: nothing is charged.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Search hyper-parameters: say the cost, charge it as a whole, run the trials and keep only the best."""
    from consilia.plan.load import load
    from consilia.study import tune_file

    loaded, tried = load(plan, list(set or [])), tune_file.load(search)
    if public:
        _public(loaded, tried, out, as_json=json)
    else:
        _charged(loaded, tried, out, check=check, as_json=json)


def _charged(plan: "Plan", tried: "TuneFile", out: Path | None, *, check: bool, as_json: bool) -> None:
    from consilia.study.offer import offer

    offered = offer(plan, tried, Path.cwd())
    cost = _cost(offered)
    if not as_json:
        _show_cost(cost)
    elif check:
        output.emit({"cost": cost})
    if not check:
        _run(offered, cost, out, as_json=as_json)


def _run(offered: "Offer", cost: Mapping[str, Any], out: Path | None, *, as_json: bool) -> None:
    from consilia.api import home
    from consilia.cli.interruption import Interrupted
    from consilia.cli.site_log import warnings_once
    from consilia.plan.load import canonical
    from consilia.report.page import write_report
    from consilia.report.plan_text import text
    from consilia.study.search import search

    try:
        with warnings_once():
            found = search(
                offered, data_folder=Path.cwd(), home=home(), out=out, on_trial=_tell, on_round=lambda _record: None
            )
    except KeyboardInterrupt:
        raise Interrupted("If trials had begun, the search stays charged as a whole and publishes nothing; a new search is "
                          "charged anew. See: consilia ledger show") from None  # fmt: skip
    document: dict[str, Any] = {"cost": cost, "folder": str(found.folder), "values": found.values, "winner": None}
    if found.winner is not None and found.plan is not None:
        place = found.folder / "winner.toml"
        place.write_text(text(dict(_mapping(canonical(found.plan)))) + "\n", encoding="utf-8")
        summary = dict(found.winner.summary) | {"folder": str(found.winner.folder)}
        document |= {"winner": summary, "plan": str(place), "report": str(write_report(found.winner.folder))}
    if as_json:
        output.emit(document)
    else:
        _show_found(document, offered.tune.score)
    if found.winner is None:
        raise typer.Exit(4)


def _public(plan: "Plan", tried: "TuneFile", out: Path | None, *, as_json: bool) -> None:
    from consilia.core.errors import PlanError
    from consilia.plan.load import canonical
    from consilia.report.plan_text import text
    from consilia.study.public import public_search

    place = out if out is not None else Path("tuned.toml")
    if place.exists():
        raise PlanError.of(f"plan file {place}", needs="a path without a file", got="one that exists",
                           hint="Name another with --out")  # fmt: skip
    advice = public_search(plan, tried, data_folder=Path.cwd(), on_trial=_tell)
    with _writing(place):
        place.write_text(text(dict(_mapping(canonical(advice.plan)))) + "\n", encoding="utf-8")
    if as_json:
        trials = [{"values": dict(trial.values), "score": trial.score} for trial in advice.trials]
        output.emit({"plan": str(place), "values": dict(advice.values), "score": advice.score, "trials": trials})
        return
    _grid([*_values(advice.values), (tried.score, f"{abs(advice.score):.4g} on the stand-in"),
           ("charged", "nothing: the rows are public, and the plan's own were not read"), ("plan", str(place))])  # fmt: skip


@contextmanager
def _writing(place: Path) -> Iterator[None]:
    from consilia.core.errors import StoreError

    try:
        yield
    except OSError as error:
        raise StoreError.of(f"plan file {place}", needs="a path that can be written", got=error.strerror or "an error",
                            hint="Name another with --out") from None  # fmt: skip


def _cost(offered: "Offer") -> dict[str, Any]:
    from consilia.dp.selection import price
    from consilia.dp.selection_trials import Fixed, at_most
    from consilia.study.offer import sentence

    worst = max(offered.sites.values(), key=lambda site: site.epsilon)
    every = price(worst.bases, Fixed(max(1, round(offered.law.mean))), offered.delta - worst.extra_delta)
    return {
        "epsilon": offered.epsilon, "delta": offered.delta, "against": offered.against, "accountant": worst.accountant,
        "distribution": offered.tune.distribution, "trials": offered.law.mean, "at_most": at_most(offered.law, 0.95),
        "one_trial": offered.one, "all_published": every.epsilon, "statement": sentence(offered),
        "noise": [{"values": dict(values), "noise_multiplier": z} for values, z in offered.noise],
    }  # fmt: skip


def _show_cost(cost: Mapping[str, Any]) -> None:
    from consilia.report.numbers import bound

    trials = f"{cost['trials']:g} on average ({cost['distribution']}), at most {cost['at_most']} with chance 95 %"
    if cost["distribution"] == "fixed":
        trials = f"{cost['trials']:g}, all of them charged"
    noise = [
        (f"noise {_listed(part['values'])}".rstrip(), f"multiplier {part['noise_multiplier']:.5g}")
        for part in cost["noise"]
    ]
    _grid([
        ("epsilon", f"{bound(cost['epsilon'])} at delta {bound(cost['delta'])} against {cost['against']}, winner included"),
        ("trials", trials), *noise,
        ("to compare", f"one trial alone {bound(cost['one_trial'])}, all trials published {bound(cost['all_published'])}"),
        ("accountant", cost["accountant"]), ("claim", cost["statement"]),
    ])  # fmt: skip


def _show_found(document: Mapping[str, Any], score: str) -> None:
    from rich.text import Text

    from consilia.report.numbers import plain

    summary = document["winner"]
    if summary is None:
        _grid([("winner", "none: no trial was drawn, or none came to a score"), ("charged", "the whole search")])
        return
    terminal = output.console()
    terminal.print()
    _grid([*_values(document["values"]), (score, plain(summary[score]))])
    terminal.print()
    for label, value in (
        ("plan", document["plan"]),
        ("report", document["report"]),
        ("kept", f"{summary['folder']}; every other trial is deleted"),
    ):
        terminal.print(Text.assemble((f"{label:<8}", "dim"), value), soft_wrap=True)


def _tell(trial: "Trial") -> None:
    if trial.score is None:
        output.say(f"trial {trial.number} of {trial.of}: {_listed(trial.values)}")
    else:
        output.say(f"trial {trial.number} of {trial.of}: score {trial.score:.4g}")


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key.partition('.')[2]} {value}" for key, value in values.items())


def _values(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key, str(value)) for key, value in values.items()]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _grid(rows: list[tuple[str, str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in rows:
        grid.add_row(label, Text(value))
    output.console().print(grid)
