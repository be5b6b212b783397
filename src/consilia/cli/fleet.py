"""`consilia fleet job`: a plan as a job of an NVFlare fleet."""

from pathlib import Path
from typing import Annotated

import typer

from consilia.cli import options, output

app = typer.Typer(no_args_is_help=True, help="Run a plan on a fleet that is there already.")


@app.callback()
def _fleet() -> None:
    """What stands before a command."""


@app.command("job")
def job(
    plan: options.PlanFile,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The job's folder, which must not exist.")],
    client: Annotated[
        list[str] | None,
        typer.Option(
            "--client", metavar="SITE=CLIENT", help="What NVFlare calls a site. Repeatable: one for each site."
        ),
    ] = None,
    set: options.Overrides = None,
    json: options.Json = False,
) -> None:
    """Write an NVFlare job: the plan and the names of two installed classes; sites agree by their own policies."""
    from consilia.core.errors import PlanError, Problem
    from consilia.federation.fleet.job import write_job
    from consilia.plan.load import load

    pairs = [one.partition("=") for one in client or []]
    faults = [
        Problem("option --client", "SITE=CLIENT", repr(site + equal + name), "As in: --client Cleveland=site-1")
        for site, equal, name in pairs
        if not (site and equal and name)
    ]
    if not pairs:
        faults.append(
            Problem("consilia fleet job", "--client SITE=CLIENT for each site", "none", "As in: --client Bern=site-1")
        )
    if faults:
        raise PlanError(faults)
    clients = {site: name for site, _, name in pairs}
    write_job(load(plan, list(set or [])), clients, out)
    if json:
        output.emit({"job": str(out), "clients": clients})
    else:
        print(f"{out}\n\nNext: nvflare job submit -j {out}")
