"""The program `consilia`: its commands, and how each ends (see the exit codes in `core.errors`)."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from consilia.cli import (
    account,
    calibrate,
    check,
    coordinator,
    export,
    fleet,
    init,
    ledger,
    operate,
    output,
    report,
    roster,
    run,
    schema,
    site,
    study,
    tune,
)  # fmt: skip
from consilia.cli.interruption import Interrupted
from consilia.core.errors import ConsiliaError, PlanError, Problem, StoreError
from consilia.core.version import VERSION

_EPILOG = (
    "Exit codes: 0 done, 2 plan or data cannot be used, 3 a privacy budget refuses, 4 protocol, 5 ledger or journal, "
    "6 transport, 130 interrupted."
)
_TRACEBACK = "CONSILIA_TRACEBACK"
app = typer.Typer(
    name="consilia", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, epilog=_EPILOG,
    help="Train one model across institutions without moving their data, and state what any record can leak.",
)  # fmt: skip


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"consilia {VERSION}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", metavar="", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    """What stands before a command; the program's help is the app's."""


_HERE, _BETWEEN, _FIGURES = "On one machine", "Between institutions", "Figures and records"
app.command("run", rich_help_panel=_HERE)(run.run)
app.command("check", rich_help_panel=_HERE)(check.check)
app.command("tune", rich_help_panel=_HERE)(tune.tune)
app.add_typer(study.app, name="study", rich_help_panel=_HERE)
app.command("init", rich_help_panel=_HERE)(init.init)
app.command("report", rich_help_panel=_HERE)(report.report)
app.command("export", rich_help_panel=_HERE)(export.export)
app.add_typer(roster.app, name="roster", rich_help_panel=_BETWEEN)
app.command("coordinator", rich_help_panel=_BETWEEN)(coordinator.coordinator)
app.add_typer(site.app, name="site", rich_help_panel=_BETWEEN)
app.command("submit", rich_help_panel=_BETWEEN)(operate.submit)
app.command("status", rich_help_panel=_BETWEEN)(operate.status)
app.command("stop", rich_help_panel=_BETWEEN)(operate.stop)
app.add_typer(fleet.app, name="fleet", rich_help_panel=_BETWEEN)
app.command("account", rich_help_panel=_FIGURES)(account.account)
app.command("calibrate", rich_help_panel=_FIGURES)(calibrate.calibrate)
app.add_typer(ledger.app, name="ledger", rich_help_panel=_FIGURES)
app.command("schema", rich_help_panel=_FIGURES)(schema.schema)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; what a caller or file can cause never shows a traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in given
    try:
        os.getcwd()  # a folder that was deleted under the shell ends the libraries below without a word of sense
        code = app(args=given, prog_name="consilia", standalone_mode=False)
        sys.stdout.flush()
        if code == 130:  # typer's word for Ctrl-C, where no command caught it
            raise KeyboardInterrupt
    except BrokenPipeError:
        output.close_quietly()
        return 1
    except ConsiliaError as error:
        return output.show_error(error, as_json=as_json)
    except (KeyboardInterrupt, Interrupted, typer.Abort) as error:
        return _interrupted(error, as_json=as_json)
    except typer.TyperException as error:
        return _misused(error, as_json=as_json)
    except Exception as error:
        if os.environ.get(_TRACEBACK):
            raise
        return output.show_error(_unexpected(error), as_json=as_json)
    return code if isinstance(code, int) else 0


def _interrupted(error: BaseException, *, as_json: bool) -> int:
    hint = error.hint if isinstance(error, Interrupted) else ""
    if as_json:
        problem = {"who": "consilia", "needs": "time to finish", "got": "an interruption", "hint": hint}
        output.emit({"error": {"problems": [problem], "exit_code": 130}})
    else:
        output.say(f"\nInterrupted. {hint}".rstrip(), style="bold")
    return 130


def _unexpected(error: Exception) -> ConsiliaError:
    again = f"Run again with {_TRACEBACK}=1 to see where"
    text = " ".join(str(error).split())[:300] or "no message"
    if isinstance(error, OSError):
        where = f"file {error.filename}" if error.filename is not None else "the file system"
        return StoreError.of(where[:300], needs="to be readable and writable", got=error.strerror or text,
                             hint=f"Check the path, its permissions and the space left. {again}")  # fmt: skip
    if isinstance(error, MemoryError | RecursionError):
        needs = "more memory" if isinstance(error, MemoryError) else "values that are nested less deeply"
        return ConsiliaError.of("consilia", needs=needs, got=f"{type(error).__name__}: {text}",
                                hint=f"Use a smaller plan, model or table. {again}")  # fmt: skip
    return ConsiliaError.of("consilia", needs="to finish", got=f"an unexpected failure ({type(error).__name__}: {text})",
                            hint=f"Consilia failed unexpectedly: please report it. {again}")  # fmt: skip


def _misused(error: typer.TyperException, *, as_json: bool) -> int:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "consilia"
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    if not message:  # no command at all: the help has been shown
        return 2
    usage = context.get_usage().replace("Usage: ", "") if context is not None else "consilia --help"
    problem = Problem(command, usage, message.rstrip("."), f"See: {command} --help")
    return output.show_error(PlanError([problem]), as_json=as_json)
