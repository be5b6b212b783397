"""The processes of a consortium, started as an operator would, and killed as no one would wish."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

_LONG = 120.0  # seconds; these machines may be slow


def free_port() -> int:
    """Return a port that nothing listens on now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def until(found: Callable[[], Any], *, seconds: float = _LONG, what: str = "it") -> Any:
    """Wait until something is found, and return it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = found()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError(f"{what} did not happen within {seconds:g} s")


class Processes:
    """Everybody's process.

    Args:
        folder: Holds a folder for each member.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: str, **environment: str) -> None:
        """Start a member's process: "coordinator" or "site"."""
        log = (self.folder / f"{name}.log").open("ab")
        with log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "consilia", command, "--config", str(self.folder / name / f"{command}.toml")],
                stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            )  # fmt: skip

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        """Kill a process and return how it ended."""
        process = self.running.pop(name)
        process.send_signal(number)
        return process.wait(_LONG)

    def ended(self, name: str) -> bool:
        """Say whether a process has ended by itself."""
        return self.running[name].poll() is not None

    def ask(self, *words: str) -> dict[str, Any]:
        """Run a command of the operator and return what it says in JSON."""
        done = subprocess.run(
            [sys.executable, "-m", "consilia", *words, "--json", "--config", str(self.folder / "olga" / "operator.toml")],
            capture_output=True, text=True, check=False, timeout=_LONG, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert done.stdout, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def run(self, run: str) -> Mapping[str, Any]:
        """Return where a run stands; nothing while the coordinator cannot be asked."""
        found = self.ask("status", run)
        return {} if "error" in found else found

    def ends(self, run: str) -> Mapping[str, Any]:
        """Wait until a run has ended."""

        def over() -> Mapping[str, Any] | None:
            found = self.run(run)
            return found if found.get("status") in ("done", "stopped", "failed") else None

        found: Mapping[str, Any] = until(over, what=f"the end of {run}")
        return found

    def log(self, name: str) -> str:
        """Return what a member's process logged."""
        return (self.folder / f"{name}.log").read_text()


@contextlib.contextmanager
def processes(folder: Path | Processes) -> Iterator[Processes]:
    """Kill whatever is left."""
    made = folder if isinstance(folder, Processes) else Processes(folder)
    try:
        yield made
    finally:
        for name in list(made.running):
            made.kill(name)
