"""Write docs/reference/cli.md from the commands themselves.

python docs/make/cli_reference.py
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from consilia.cli.main import app

PAGE = Path(__file__).resolve().parents[1] / "reference" / "cli.md"
_HEAD = """\
# Command line

<!-- Written by docs/make/cli_reference.py; a test holds it to the program. -->

Every command takes `--json`: one JSON document on stdout, everything else on stderr. Exit codes and the wording of errors are in
[errors.md](errors.md). Ledgers lie in `.consilia` of the current folder, or in the folder that `CONSILIA_HOME` names.
"""


def page() -> str:
    """Return the page's text."""
    root: Any = typer.main.get_command(app)
    overview = "\n".join(
        f"| [`{words}`](#{words.replace(' ', '-')}) | {_text(command)} |" for words, command in _walk(root)
    )
    return "\n".join(
        [_HEAD, "| command | does |\n|---|---|\n" + overview + "\n", *(_section(*item) for item in _walk(root))]
    )


def _walk(group: Any, prefix: str = "consilia") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        words = f"{prefix} {name}"
        if hasattr(command, "commands"):
            yield from _walk(command, words)
        else:
            yield words, command


def _section(words: str, command: Any) -> str:
    parameters = [_row(parameter) for parameter in command.params if "--help" not in parameter.opts]
    usage = " ".join(
        [words, *(_usage(parameter) for parameter in command.params if parameter.param_type_name == "argument")]
    )
    table = "\n".join(["| argument or option | | default |", "|---|---|---|", *parameters])
    return f"## {words}\n\n`{usage} [OPTIONS]`\n\n{_text(command)}\n\n{table}\n"


def _text(command: Any) -> str:
    return " ".join((command.help or "").split()).replace("|", "\\|")


def _usage(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return name if parameter.required else f"[{name}]"


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        shown = parameter.metavar or parameter.name.upper()
    else:
        shown = " ".join([parameter.opts[0], parameter.metavar or ""]).strip()
    default = (
        "required" if parameter.required else "" if parameter.default in (None, False) else f"`{parameter.default}`"
    )
    return f"| `{shown}` | {parameter.help or ''} | {default} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
