"""`consilia site`: take part in runs, and decide what this site agrees to."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from consilia.cli import options, output

if TYPE_CHECKING:
    from consilia.cli.site_consent import Desk

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


@app.command("pending")
def pending(config: Config = CONFIG, json: options.Json = False) -> None:
    """Show the plans that wait for a steward, and what was refused and why."""
    from consilia.cli import site_consent

    with _desk(config) as desk:
        site_consent.pending(desk, as_json=json)


@app.command("approve")
def approve(
    digest: Annotated[str, typer.Argument(metavar="DIGEST", help="Of a plan that waits, or how it begins.")],
    config: Config = CONFIG,
    yes: Annotated[bool, typer.Option("--yes", metavar="", help="Ask nothing.")] = False,
    json: options.Json = False,
) -> None:
    """Show what a plan will do and what leaves, and approve it."""
    from consilia.cli import site_consent

    def sure() -> bool:
        return yes or typer.confirm("Approve this plan?")

    with _desk(config) as desk:
        site_consent.approve(desk, digest, sure=sure, as_json=json)


@app.command("withdraw")
def withdraw(
    digest: Annotated[str, typer.Argument(metavar="DIGEST", help="Of an approved plan, or how it begins.")],
    config: Config = CONFIG,
) -> None:
    """Take back an approval; runs that were agreed to go on."""
    from consilia.cli import site_consent

    with _desk(config) as desk:
        site_consent.withdraw(desk.store, digest)


@app.command("policy")
def policy(config: Config = CONFIG, json: options.Json = False) -> None:
    """Check the policy and show what it means, defaults included."""
    from consilia.cli import site_consent
    from consilia.federation.config import SiteConfig, read_config

    site_consent.policy(config.parent / read_config(config, SiteConfig).policy, as_json=json)


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
        print(f"Wrote {path}")
    print(f"Next: read {written[-1]}, then: consilia site --config {config}")


@contextmanager
def _desk(config: Path) -> Iterator["Desk"]:
    from consilia.cli.site_consent import Desk
    from consilia.federation.site_process import open_service
    from consilia.plan.policy import Policy

    with open_service(config) as (told, store, service):
        yield Desk(store, Policy.read(config.resolve().parent / told.policy), service.examine)
