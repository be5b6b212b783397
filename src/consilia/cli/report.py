"""`consilia report`: the page of a run, made anew from its journal."""

from pathlib import Path
from typing import Annotated

import typer

from consilia.cli import options, output


def report(
    run: options.RunFolder,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where to; RUN/report.html when absent.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Write the report of a run, also of one that is still training."""
    from consilia.report.page import write_report

    path = write_report(run, out)
    if json:
        output.emit({"report": str(path)})
    else:
        print(path)
