"""SIGKILL of the coordinator and of each site at every crash point of a run, one at a time, against the unbroken run.

    python -m tests.promises.matrix CASES.json

reads a JSON list of cases {"mode", "actor", "point", "passage"} and prints a JSON line of what came of each; an empty point
kills nobody. Imports once, then forks every process of every run.
"""

import hashlib
import json
import logging
import os
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from tests.promises.fleet import RUN, Case, Fleet, entropy_for, run_plan
from tests.promises.oracle import Oracle, ViolationError
from tests.promises.processes import Log, coordinate, serve, spawn

from consilia.core.update import ProtocolMessage
from consilia.core.wire import decode, pack_vector
from consilia.rounds.entropy import Entropy
from consilia.store import crash

COORDINATOR = "coordinator"
CASES = {
    "plain": Case("dp", reproducible=True),
    "kept": Case("clear", 3, reproducible=True),
    "server": Case("server", 3, reproducible=True),
    "secure": Case("masks", reproducible=True),
    "secure+dp": Case("masks-dp", reproducible=True),
    "private": Case("masks-dp"),
}
PATIENCE = 60.0


class _Counting(str):
    """Stands where crash points look up the place to die at, and counts them by actor."""

    __slots__ = ("path",)
    path: Path

    def __ne__(self, place: object) -> bool:
        with self.path.open("a") as file:
            file.write(f"{place}\n")
        return True

    __hash__ = str.__hash__


class Attempt:
    """One run in a folder of its own."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder = case, folder
        entropy = entropy_for(case, 0) if case.reproducible else Entropy()
        self.fleet = Fleet(case, folder, entropy)
        self.put = folder / "put"
        self.put.mkdir()
        self.pids: dict[int, str] = {}

    def run(self, actor: str = "", point: str = "", passage: int = 1, *, count: bool = False) -> dict[str, Any]:
        dies = {actor: (point, passage)} if point else {}
        if count:
            dies = {name: (self._counting(name), 1) for name in (COORDINATOR, *self.case.names)}
        for name in (*self.case.names, COORDINATOR):
            self._start(name, dies.get(name))
        end, killed, fault = time.monotonic() + PATIENCE, Counter[str](), ""
        while not fault and time.monotonic() < end:
            child, status = os.waitpid(-1, os.WNOHANG)
            if child == 0:
                time.sleep(0.002)
                continue
            name = self.pids.pop(child)
            if os.WIFSIGNALED(status):
                killed[name] += 1
                self._start(name)
            elif os.WEXITSTATUS(status):
                fault = f"{name}: {self._said(name).read_text()}"
            elif name == COORDINATOR:
                break
        else:
            fault = fault or "the run did not end in time"
        self._stop()
        return {"killed": dict(killed), "fault": fault, **({} if fault else self._judged(actor if point else ""))}

    def _start(self, name: str, dies: tuple[str, int] | None = None) -> None:
        hub, log = self.folder / "hub", Log(self.folder / f"{name}.log")

        def work() -> None:
            if name == COORDINATOR:
                coordinate(self.fleet, hub, log)
            else:
                serve(self.fleet, name, hub, log, self._watch)

        self.pids[spawn(work, self._said(name), dies)] = name

    def _said(self, name: str) -> Path:
        return self.folder / f"{name}.said"

    def _stop(self) -> None:
        for child in self.pids:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        self.pids = {}

    def _counting(self, name: str) -> str:
        counting = _Counting("nowhere")
        counting.path = self.folder / f"{name}.places"
        return counting

    def places(self, name: str) -> Counter[str]:
        """Return which crash points an actor came by, and how often."""
        return Counter((self.folder / f"{name}.places").read_text().split())

    def _watch(self, name: str, site: Any) -> None:
        """In a site's process: keep on disk what it puts under its masks."""
        oracle = Oracle(self.fleet)
        oracle.started(name, site)
        oracle.put = _OnDisk(self.put)

    def _judged(self, hurt: str) -> dict[str, Any]:
        oracle = Oracle(self.fleet)
        oracle.put = {path.stem: np.load(path) for path in self.put.iterdir()}
        # Where noise is fresh, a site that had charged and not answered charges again, and has a turn less in the end; and the
        # sites' answers to a coordinator that was killed are in no other sum. Elsewhere nothing may be missing.
        for number in range(1, self.case.rounds + 2) if not self.case.reproducible else ():
            oracle.ran[number] |= set(self.case.names) if hurt == COORDINATOR else {hurt}
        try:
            for _, kind, site, task, answer in sorted(self._crossed()):
                item = decode(bytes.fromhex(task), who="matrix")
                assert isinstance(item, ProtocolMessage)
                if kind == "told":
                    oracle.told(site, item)
                else:
                    frame = bytes.fromhex(answer)
                    oracle.left(site, item, decode(frame, who="matrix"), frame)
            oracle.ended(0.0)
            run = oracle._disk()
        except ViolationError as violation:
            return {"violation": str(violation)}
        finally:
            oracle.close()
        assert run is not None
        model = hashlib.sha256(pack_vector(run["state"].model)).hexdigest()
        return {"violation": "", "model": model, "status": run["status"], "rounds": oracle.statuses,
                "answered": [record["answered"] for record in run["records"]],
                "reserved": {name: self._reserved(name) for name in self.case.names}}  # fmt: skip

    def _crossed(self) -> Iterator[list[Any]]:
        for path in self.folder.glob("*.log"):
            for line in path.read_text().splitlines():
                yield json.loads(line)

    def _reserved(self, name: str) -> int:
        with closing(sqlite3.connect(self.fleet.site_path(name))) as sql:
            return int(
                sql.execute("SELECT count(*) FROM entries WHERE kind = 'reserve' AND run = ?", (RUN,)).fetchone()[0]
            )


class _OnDisk(dict[str, Any]):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def __setitem__(self, digest: str, vector: Any) -> None:
        np.save(self._folder / f"{digest}.npy", vector)


def memory() -> Path | None:
    return Path("/dev/shm") if Path("/dev/shm").is_dir() else None  # noqa: S108  (a file system in memory)


def passed(mode: str) -> dict[str, dict[str, int]]:
    """Return for each actor of an unbroken run which crash points it comes by, and how often."""
    with tempfile.TemporaryDirectory(dir=memory()) as place:
        attempt = Attempt(CASES[mode], Path(place) / "run")
        report = attempt.run(count=True)
        assert not report["fault"], report
        return {name: dict(attempt.places(name)) for name in (COORDINATOR, *CASES[mode].names)}


def cases(mode: str) -> list[dict[str, Any]]:
    """Return a kill for each actor and each crash point that it comes by, in the middle of the run."""
    return [
        {"mode": mode, "actor": actor, "point": point, "passage": (times + 1) // 2}
        for actor, places in passed(mode).items()
        for point, times in sorted(places.items())
    ]


def main() -> None:
    logging.disable()
    crash._target = ""
    for case in json.loads(Path(sys.argv[1]).read_text()):
        with tempfile.TemporaryDirectory(dir=memory()) as place:
            run_plan(CASES[case["mode"]])
            attempt = Attempt(CASES[case["mode"]], Path(place) / "run")
            begun = time.monotonic()
            report = attempt.run(case["actor"], case["point"], case["passage"])
            print(json.dumps({**case, **report, "seconds": round(time.monotonic() - begun, 3)}), flush=True)


if __name__ == "__main__":
    main()
