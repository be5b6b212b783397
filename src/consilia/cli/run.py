"""`consilia run`: train as a plan says, or go on with a run that was stopped."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from consilia.cli import options, output

if TYPE_CHECKING:
    from consilia.api import RunResult


def run(
    plan: Annotated[Path | None, typer.Argument(metavar="PLAN", help="A plan; not with --resume.")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="The run's own folder.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="The public seed (run.seed).")] = None,
    set: options.Overrides = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", metavar="RUN", help="Go on with the run in this folder.")
    ] = None,
    engine: Annotated[
        str, typer.Option("--engine", metavar="NAME", help="What trains: process, or ray (extra consilia[ray]).")
    ] = "process",
    json: options.Json = False,
) -> None:
    """Train, and write the run's folder: journal, model, result and report."""
    overrides = list(set or []) + ([] if seed is None else [f"run.seed={seed}"])
    _require(plan, out, overrides, resume)
    result = _go_on(resume, engine) if resume is not None else _begin(plan or Path(), overrides, out, engine)
    summary = dict(result.summary) | {"folder": str(result.folder), "report": _report(result.folder)}
    if json:
        output.emit(summary)
    else:
        from consilia.cli.outcome import show
        from consilia.report.document import legible, read

        with legible(result.folder):
            show(summary, read(result.folder).facts)
    if summary["status"] == "failed":
        raise typer.Exit(4)


def _require(plan: Path | None, out: Path | None, overrides: list[str], resume: Path | None) -> None:
    from consilia.core.errors import PlanError, Problem

    problems = []
    if (plan is None) == (resume is None):
        got = "neither" if plan is None else "both"
        hint = "As in: consilia run examples/plans/heart.toml"
        problems.append(Problem("consilia run", "either a PLAN or --resume RUN", got, hint))
    if resume is not None and (overrides or out is not None):
        given = " and ".join(["--out"] * (out is not None) + ["--set or --seed"] * bool(overrides))
        problems.append(Problem("consilia run --resume", "the plan and folder that the run began with", given,
                                "Leave them out, or start a new run"))  # fmt: skip
    if problems:
        raise PlanError(problems)


def _begin(path: Path, overrides: list[str], out: Path | None, engine: str) -> "RunResult":
    from consilia.cli.interruption import Interrupted, after_the_round
    from consilia.cli.progress import Progress
    from consilia.cli.site_log import warnings_once
    from consilia.plan.load import load
    from consilia.plan.phases import total_rounds

    plan = load(path, overrides)
    before = _runs()
    try:
        with Progress(total_rounds(plan)) as progress, warnings_once():
            from consilia import api  # takes seconds: the bar is there before

            with after_the_round(progress) as on_round:
                return api.run(plan, out=out, on_round=on_round, engine=engine)
    except KeyboardInterrupt:
        begun = [out] if out is not None and (out / "journal.sqlite").exists() else sorted(_runs() - before)
        raise Interrupted(_how_to_resume(begun[0]) if begun else "Nothing had begun.") from None


def _go_on(folder: Path, engine: str) -> "RunResult":
    from consilia.cli.interruption import Interrupted, after_the_round
    from consilia.cli.progress import Progress
    from consilia.cli.site_log import warnings_once
    from consilia.core.errors import PlanError, StoreError
    from consilia.plan.load import from_json
    from consilia.report.document import legible, read

    past = read(folder)
    with legible(folder):
        moved = sum(record["bytes_up"] + record["bytes_down"] for record in past.records)
    try:
        from_json(past.plan)
    except PlanError as error:  # nobody wrote it by hand: the fault is the journal's
        raise StoreError(error.problems) from None
    try:
        with Progress(past.facts["rounds"], done=len(past.records), moved=moved) as progress, warnings_once():
            from consilia import api

            with after_the_round(progress) as on_round:
                return api.resume(folder, on_round=on_round, engine=engine)
    except KeyboardInterrupt:
        raise Interrupted(_how_to_resume(folder)) from None


def _how_to_resume(folder: Path) -> str:
    return f"Go on with: consilia run --resume {folder}"


def _runs() -> frozenset[Path]:
    return frozenset(path.parent for path in Path("runs").glob("*/journal.sqlite"))


def _report(folder: Path) -> str | None:
    from consilia.core.errors import ConsiliaError
    from consilia.report.page import write_report

    try:
        return str(write_report(folder))
    except ConsiliaError as error:  # the run is done and safe; only its page is missing
        output.say(str(error), style="red")
        return None
