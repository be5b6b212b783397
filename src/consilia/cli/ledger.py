"""`consilia ledger`: what the sites' ledgers hold, and whether they are whole."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from consilia.core.errors import StoreError

from consilia.cli import options, output

app = typer.Typer(help="Show or verify the sites' ledgers (in .consilia, or CONSILIA_HOME).", no_args_is_help=True)
Site = Annotated[str | None, typer.Option("--site", metavar="NAME", help="Only this site's ledger.")]


@app.command("show")
def show(site: Site = None, json: options.Json = False) -> None:
    """List what each run was allotted and has charged, and the sums per population."""
    from consilia.store.ledger_store import SiteStore

    found: list[dict[str, Any]] = []
    for name, path in _ledgers(site).items():
        with SiteStore.open(path, name) as store:
            found += [_population(store, population) for population in store.populations()]
    if json:
        output.emit({"ledgers": found})
    else:
        _print(found)


@app.command("verify")
def verify(
    site: Site = None,
    head: Annotated[
        str | None, typer.Option("--head", metavar="HASH", help="A head kept elsewhere; needs --site.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Check every hash chain from its first entry; exit 5 if one was changed, cut or reordered."""
    from consilia.core.errors import PlanError, Problem, StoreError
    from consilia.store.ledger_store import SiteStore

    if head is not None and site is None:
        raise PlanError.of(
            "option --head", needs="--site NAME beside it", got="none", hint="A head belongs to one site's ledger"
        )
    heads: list[dict[str, Any]] = []
    problems: list[Problem] = []
    seen = False
    for name, path in _ledgers(site).items():
        try:
            with SiteStore.open(path, name) as store:
                for population in store.populations():
                    entries = store.entries(population)
                    heads.append({"site": name, "population": population, "entries": len(entries),
                                  "head": store.verify(population)})  # fmt: skip
                    seen = seen or head in {entry.hash for entry in entries}
        except StoreError as error:
            problems += error.problems
    if head is not None and not seen and not problems:
        problems.append(Problem(f"the ledger of site {site!r}", f"an entry {head[:16]}", "none with that hash",
                                "Its end was cut or its disk rolled back: restore the newest copy"))  # fmt: skip
    if not heads and not problems:
        raise _no_ledgers(_folder(), "ledgers without an entry")
    if problems:
        raise StoreError(problems)
    if json:
        output.emit({"verified": heads})
    for row in [] if json else heads:
        print(f"{row['site']}  {row['population']}  whole, {row['entries']} entries, head {row['head']}")


@app.command("limit")
def limit(
    epsilon: Annotated[float, typer.Argument(metavar="EPSILON", help="What all runs may sum up to from now on.")],
    site: Annotated[str, typer.Option("--site", metavar="NAME", help="Whose ledger.")],
    population: Annotated[str, typer.Option("--population", metavar="P", help="Whom it is for.")],
    json: options.Json = False,
) -> None:
    """Set a population's limit, also above what plans asked for: only the steward can raise it."""
    from consilia.store.ledger_store import SiteStore

    with SiteStore.open(_ledgers(site)[site], site) as store:
        store.set_limit(population, epsilon)
        entry = _population(store, population)
    if json:
        output.emit(entry)
    else:
        _print([entry])


def _ledgers(site: str | None) -> dict[str, Path]:
    from consilia.core.errors import StoreError

    folder = _folder()
    try:
        found = {path.stem: path for path in sorted(folder.iterdir()) if path.suffix == ".sqlite"}
    except OSError as error:  # iterdir says what is wrong, where glob finds nothing
        raise _no_ledgers(folder, error.strerror or "an error") from None
    if not found:
        raise _no_ledgers(folder, "none")
    if site is not None and site not in found:
        known = ", ".join(found) or "none"
        raise StoreError.of(f"site {site!r}", needs=f"a ledger in {folder}", got=f"ledgers of: {known}",
                            hint="Name one of them, or set CONSILIA_HOME to the folder that holds sites/")  # fmt: skip
    return found if site is None else {site: found[site]}


def _folder() -> Path:
    from consilia.api import home

    return home() / "sites"


def _no_ledgers(folder: Path, got: str) -> "StoreError":
    from consilia.core.errors import StoreError

    return StoreError.of("consilia ledger", needs=f"ledgers in {folder}", got=got,
                         hint="Run a private plan first, or set CONSILIA_HOME to the folder that holds sites/")  # fmt: skip


def _population(store: Any, population: str) -> dict[str, Any]:
    sums = [
        {"adjacency": relation.adjacency, "against": relation.against, "epsilon": epsilon, "delta": delta}
        for relation, (epsilon, delta) in store.spent(population).items()
    ]
    runs = []
    for allotment in store.allotments(population):
        allowed = sum(times for _, times in allotment.events)
        charged = sum(times for _, times in store.charged(allotment.run))
        part: dict[str, Any] = {} if allotment.within is None else {"within": allotment.within}
        if allotment.search is not None:
            part = {"trials": allotment.search.trials, "law": allotment.search.law.to_json()}
        runs.append({"run": allotment.run, "adjacency": allotment.adjacency, "against": allotment.against,
                     "epsilon": allotment.epsilon, "delta": allotment.delta, "charged": charged,
                     "allotted": allowed, **part})  # fmt: skip
    return {"site": store.site, "population": population, "limit": store.limit(population), "spent": sums,
            "head": store.head(population), "runs": runs,
            "data_changes": [asdict(change) for change in store.data_changes(population)]}  # fmt: skip


def _print(found: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    from consilia.report.numbers import bound, counted

    terminal = output.console()
    if not found:
        terminal.print("No ledger holds anything yet.")
    for entry in found:
        limit = "" if entry["limit"] is None else f", limit {entry['limit']:g} over all runs"
        terminal.print(Text.assemble((entry["site"], "bold"), f", population {entry['population']}{limit}"))
        if not entry["runs"]:
            terminal.print("  no run yet")
            continue
        table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
        table.add_column("  run", overflow="fold")
        for title in ("epsilon", "delta", "charges"):
            table.add_column(title, justify="right")
        for run in entry["runs"]:
            covered = run.get("within") is not None  # its search was charged for it
            table.add_row(
                f"  {'  ' * covered}{run['run']}",
                "" if covered else bound(run["epsilon"]),
                "" if covered else bound(run["delta"], 6),
                counted(run["trials"], "trial") if "trials" in run else f"{run['charged']} of {run['allotted']}",
            )
        for row in entry["spent"]:
            label = f"  all runs, {row['adjacency']} against {row['against']}"
            table.add_row(label, Text(bound(row["epsilon"]), style="bold"), bound(row["delta"], 6), "")
        terminal.print(table)
        for change in entry["data_changes"]:
            terminal.print(f"  other rows from run {change['run']}, round {change['round']}; the budget goes on")
        terminal.print(Text(f"  head {entry['head']}\n", style="dim"), soft_wrap=True)
