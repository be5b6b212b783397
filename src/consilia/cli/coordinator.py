"""`consilia coordinator`: run plans with sites that dial in."""

from pathlib import Path
from typing import Annotated

import typer

from consilia.cli import output

CONFIG = Path("coordinator.toml")


def coordinator(
    config: Annotated[
        Path, typer.Option("--config", metavar="FILE", help="coordinator.toml, in the folder of its keys.")
    ] = CONFIG,
    verbose: Annotated[bool, typer.Option("--verbose", metavar="", help="Log more.")] = False,
) -> None:
    """Run the coordinator: it listens for sites and operators, and goes on with its runs after a restart."""
    from consilia.cli import logs
    from consilia.cli.signals import until_told
    from consilia.federation.coordinator_process import CoordinatorProcess

    logs.start(verbose=verbose)
    with CoordinatorProcess(config, _report) as process:
        for warning in process.credentials.warnings():
            output.say(f"Warning: {warning}", style="yellow")
        where = process.config.listen.rpartition(":")[0]
        output.say(f"listening on {where}:{process.server.port}, status on port {process.status.port}")
        until_told(process.run)


def _report(folder: Path) -> None:
    from consilia.core.errors import ConsiliaError
    from consilia.report.page import write_report

    try:
        write_report(folder)
    except ConsiliaError as error:  # the run is done and safe; only its page is missing
        output.say(f"No report for {folder}: {error}", style="yellow")
