"""`consilia submit`, `status` and `stop`: what an operator asks of a coordinator."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consilia.cli import options, output
from consilia.report.numbers import counted

if TYPE_CHECKING:
    from consilia.core.canonical import Json

CONFIG = Path("operator.toml")
Config = Annotated[
    Path, typer.Option("--config", metavar="FILE", help="operator.toml, in the folder of the operator's keys.")
]
_TERMINAL = ("done", "stopped", "failed")
_LOOK = 1.0  # seconds


def submit(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan.")],
    config: Config = CONFIG,
    set: options.Overrides = None,
    wait: Annotated[bool, typer.Option("--wait", metavar="", help="Wait until the run has ended.")] = False,
    json: options.Json = False,
) -> None:
    """Hand a plan to the coordinator, which proposes it to the sites and runs it once enough of them agree."""
    from consilia.federation.naming import new_run
    from consilia.plan.load import canonical, load
    from consilia.plan.travelling import travelling

    loaded = load(plan, list(set or []))
    run = new_run(loaded)
    _ask(config, {"do": "submit", "run": run, "plan": canonical(travelling(loaded))})
    found = _wait(config, run) if wait else {"run": run, "status": "queued"}
    if json:
        output.emit(found)
    else:
        print(run if not wait else f"{run}: {_outcome(found)}")
        if not wait:
            output.say(f"Follow it with: consilia status {run} --config {config}")
    if found["status"] == "failed":
        raise typer.Exit(4)


def status(
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="Only this run, with every site's answer.")] = None,
    config: Config = CONFIG,
    wait: Annotated[bool, typer.Option("--wait", metavar="", help="Wait until RUN has ended.")] = False,
    json: options.Json = False,
) -> None:
    """Show who is connected and where every run stands."""
    from consilia.cli import standing

    if run is not None and wait:
        _wait(config, run)
    found = _ask(config, {"do": "status"})
    if run is not None:
        one = _one(found, run)
        output.emit(one) if json else standing.show_run(one)
    elif json:
        output.emit(found)
    else:
        standing.show(found)


def stop(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run.")],
    config: Config = CONFIG,
    json: options.Json = False,
) -> None:
    """End a run after the round it is in; its model so far is kept."""
    found = _ask(config, {"do": "stop", "run": run})
    if json:
        output.emit(found)
    else:
        print(f"{run} stops after its round.")


def _ask(config: Path, request: "Mapping[str, Json]") -> dict[str, Any]:
    from consilia.federation.config import OperatorConfig, read_config
    from consilia.federation.site_process import member
    from consilia.transport.grpc.control import call

    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what it would print is no help; our message is
    told = read_config(config, OperatorConfig)
    return call(told.coordinator, member(config.resolve().parent, "operator"), dict(request))


def _one(found: Mapping[str, Any], run: str) -> dict[str, Any]:
    from consilia.core.errors import PlanError

    for one in found["runs"]:
        if one["run"] == run:
            return dict(one)
    raise PlanError.of("consilia status", needs="a run that the coordinator knows", got=run,
                       hint="Without a run, consilia status lists them")  # fmt: skip


def _wait(config: Path, run: str) -> dict[str, Any]:
    from consilia.core.errors import TransportError

    said = ""
    while True:
        try:
            found = _one(_ask(config, {"do": "status"}), run)
            if found["status"] in _TERMINAL:
                return found
            said = ""
        except TransportError as error:  # it may be restarting: the run goes on then
            if str(error) != said:  # once, not at every look
                said = str(error)
                output.say(f"waiting: {error}")
        time.sleep(_LOOK)


def _outcome(found: Mapping[str, Any]) -> str:
    reason = f"\n{found['reason']}" if found["reason"] else ""
    return f"{found['status']} after {counted(found['round'], 'round')}{reason}"
