"""`consilia site`: take part in runs, and decide what this site agrees to."""

from pathlib import Path
from typing import Annotated

import typer

from consilia.cli import output

app = typer.Typer(help="Run one site, behind its firewall, and decide what it agrees to.")
CONFIG = Path("site.toml")
Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="site.toml, in the folder of the site's keys.")]
Verbose = Annotated[bool, typer.Option("--verbose", metavar="", help="Log more.")]


@app.callback(invoke_without_command=True)
def site(context: typer.Context, config: Config = CONFIG, verbose: Verbose = False) -> None:
    """Run one site: it dials out to the coordinator and takes part in what its policy lets through.

    Everything else is a command below; without one, the site runs until it is stopped.
    """
    if context.invoked_subcommand is not None:
        return
    from consilia.cli import logs
    from consilia.cli.signals import until_told
    from consilia.federation.site_process import SiteProcess

    logs.start(verbose=verbose)
    process = SiteProcess(config)
    for warning in process.credentials.warnings():
        output.say(f"Warning: {warning}", style="yellow")
    until_told(process.run)


@app.command("init")
def write(
    coordinator: Annotated[str, typer.Option("--coordinator", metavar="HOST:PORT", help="Where it listens.")],
    config: Config = CONFIG,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", metavar="NAME[=FILE]", help="A data set of this site; without FILE a built-in table."),
    ] = None,
) -> None:
    """Write site.toml and policy.toml, with every setting explained, into the folder of the site's keys."""
    from consilia.federation.templates import write_site
    from consilia.plan.policy_template import policy_template

    written = write_site(config, coordinator, list(data or []), policy_template())
    for path in written:
        output.say(f"wrote {path}")
    output.say(f"Next: read {written[-1]}, then: consilia site --config {config}")
