"""What `consilia roster` says and asks."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilia.cli import output

if TYPE_CHECKING:
    from consilia.transport.credentials.names import Role
    from consilia.transport.credentials.request import Request


def then(role: "Role", place: Path) -> list[str]:
    """Return what a new member does next."""
    config = place / f"{role}.toml"
    if config.exists():
        return []
    file = shlex.quote(str(config))
    nexts = {
        "site": f"consilia site init --config {file} --coordinator HOST:PORT --data NAME=FILE",
        "coordinator": f"write {file}, then: consilia coordinator --config {file}",
        "operator": f"write {file}, then: consilia status --config {file}",
    }
    return ["", f"Next: {nexts[role]}"]


def request(request: "Request", path: Path) -> dict[str, Any]:
    """Return a request as a JSON document names it."""
    return {"name": request.name, "role": request.role, "request": str(path), "fingerprint": request.fingerprint}


def tell(found: dict[str, Any], json: bool, lines: list[str]) -> None:
    """Print what was done: as JSON, or as lines."""
    if json:
        output.emit(found)
    else:
        print("\n".join(lines))


def confirm(lines: list[str], question: str, *, yes: bool) -> None:
    """Show what is about to happen and go on only after a yes."""
    from consilia.core.errors import PlanError

    for line in lines:
        output.say(line)
    if yes:
        return
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if answer.strip().lower() not in ("y", "yes"):
        if not answer.endswith("\n"):
            print(file=sys.stderr)
        raise PlanError.of("consilia roster", needs="a yes", got=repr(answer.strip()) if answer else "no answer", hint=(
            "Nothing was changed. Compare by telephone, on a number you know; where that is done, --yes asks nothing"
        ))  # fmt: skip


def back(name: str, place: Path) -> str:
    """Return what a member does once its request has been signed."""
    where = "" if place == Path(name) else f" --dir {shlex.quote(str(place))}"
    return f"With the roster.json that comes back: consilia roster add {shlex.quote(name)} --roster roster.json{where}"
