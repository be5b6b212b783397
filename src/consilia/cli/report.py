"""`consilia report`: the page of a run, made anew from its journal."""

from consilia.cli import options, output


def report(run: options.RunFolder, json: options.Json = False) -> None:
    """Write the report of a run, also of one that is still training."""
    from consilia.report.page import write_report

    path = write_report(run)
    if json:
        output.emit({"report": str(path)})
    else:
        print(path)
