"""`consilia init`: a commented plan to start from."""

from pathlib import Path
from typing import Annotated

import typer

from consilia.cli import options, output


def init(
    path: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("plan.toml"),
    json: options.Json = False,
) -> None:
    """Write a commented plan that runs on the built-in data; never overwrites."""
    from consilia.core.errors import PlanError
    from consilia.plan.template import template

    who = f"plan file {path}"
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(template())
    except FileExistsError:
        raise PlanError.of(who, needs="a path without a file", got="one that exists",
                           hint="Name another: consilia init other.toml") from None  # fmt: skip
    except OSError as error:
        raise PlanError.of(who, needs="a path that can be written", got=error.strerror or "an error",
                           hint="Name a file in an existing folder") from None  # fmt: skip
    if json:
        output.emit({"path": str(path)})
    else:
        print(f"Wrote {path}. Check it: consilia check {path}")
