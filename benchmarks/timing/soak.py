"""A long run of real processes over gRPC on loopback, with faults on purpose: what grows, and whether the books agree."""

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.timing.links import consortium
from consilia.plan.load import canonical, from_text
from consilia.plan.travelling import travelling
from consilia.transport.credentials.credentials import Credentials
from consilia.transport.grpc.control import call

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 600.0  # seconds without a round
RUN = "soak"
CACHE = 2000 / 1024  # MB of pages that SQLite keeps of a database, as it is set from the start
_POLICY = """
[approval]
mode = "never"
[privacy]
max_epsilon_run = inf
max_epsilon_set = inf
max_delta = 1e-4
noise = "distributed"
[secure_sum]
passive = true
[evaluation]
metrics = "public"
"""
_PLAN = """
[run]
name = "soak"
[data]
source = "heart"
[sites]
partition = "iid"
count = {sites}
counts = "public"
[training]
algorithm = "fedsgd"
batch = "full"
rounds = {rounds}
server_optimizer = "momentum"
server_learning_rate = 0.1
[privacy]
unit = "record"
noise_multiplier = 20.0
clip_norm = 1.0
delta = 1e-5
delta_reason = "a public table"
noise = "{noise}"
[aggregation]
deadline_seconds = 20
[evaluation]
{metrics}
{secure}"""


@dataclass(frozen=True)
class Shape:
    """How large a soak is.

    Attributes:
        mode: plain or masks.
        rounds: Of the run.
        steady: Sites in each process that lives through the run.
        mortal: Sites that have a process of their own, which is killed in turn.
        every: Rounds between two looks.
        kill: Rounds between two kills.
        cut: Seconds between two breaks of a line, in each process, on average.
        faults: How likely a message is dropped, delayed, repeated, reordered, corrupted.
    """

    mode: str = "plain"
    rounds: int = 300
    steady: Sequence[int] = (6, 6, 6)
    mortal: int = 2
    every: int = 10
    kill: int = 50
    cut: float = 10.0
    faults: Sequence[float] = (0.02, 0.02, 0.02, 0.02, 0.02)

    @property
    def sites(self) -> list[str]:
        """Every site's name, as the division of the table gives it."""
        count = sum(self.steady) + self.mortal
        return [f"site-{number:02d}" for number in range(1, count + 1)]

    @property
    def groups(self) -> list[list[str]]:
        """The sites of each process."""
        names, groups = iter(self.sites), []
        for count in [*self.steady, *[1] * self.mortal]:
            groups.append([next(names) for _ in range(count)])
        return groups

    @property
    def plan(self) -> str:
        """The plan, TOML."""
        fewest = len(self.sites) // 2 + 1
        masked = self.mode == "masks"
        secure = f'[secure_sum]\nmode = "masks"\nadversary = "passive"\ndropouts = {len(self.sites) - fewest}\n'
        metrics = 'metrics = "hidden"' if masked else 'metrics = "public"\nevery = 10'
        return _PLAN.format(sites=len(self.sites), rounds=self.rounds, noise="distributed" if masked else "site",
                            metrics=metrics, secure=secure if masked else "")  # fmt: skip


@dataclass
class Soak:
    """What a soak left behind.

    Attributes:
        shape: How large it was.
        folder: Everybody's folders.
        samples: process -> what it took, every so many rounds.
        kills: site -> how often its process was killed.
        status: How the run ended.
        reason: Why, where it did not end as planned.
    """

    shape: Shape
    folder: Path
    samples: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    kills: dict[str, int] = field(default_factory=dict)
    status: str = ""
    reason: str | None = None


class Processes:
    """The coordinator's process and those of the sites."""

    def __init__(self, folder: Path, shape: Shape) -> None:
        self.folder, self.shape = folder, shape
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._logs = contextlib.ExitStack()
        self.port = self.status_port = 0

    def start_coordinator(self, program: Sequence[str]) -> None:
        """Start it, and hear where it listens."""
        self._start("coordinator", [*program, "coordinator", "--config", str(self.folder / "hub" / "coordinator.toml")])
        log = self.folder / "coordinator.log"
        told = re.compile(r"listening on .*:(\d+), status on port (\d+)")

        def ports() -> re.Match[str] | None:
            if self._running["coordinator"].poll() is not None:
                raise RuntimeError(log.read_text()[-2000:])
            return told.search(log.read_text())

        found = until(ports)
        self.port, self.status_port = int(found[1]), int(found[2])

    def start_sites(self, names: Sequence[str]) -> None:
        """Start the process of these sites."""
        module = ["-m", "benchmarks.timing.soak_sites", str(self.folder), str(self.shape.cut), *names]
        self._start(names[0], module)

    def kill(self, name: str) -> None:
        """Kill a process."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def look(self, name: str) -> dict[str, float]:
        """Return what a process takes now (Linux)."""
        place = Path(f"/proc/{self._running[name].pid}")
        status = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines() if ":" in line)
        ticks = (place / "stat").read_text().rpartition(")")[2].split()
        return {
            "rss_mb": int(status["VmRSS"].split()[0]) / 1024, "anonymous_mb": int(status["RssAnon"].split()[0]) / 1024,
            "open_files": len(os.listdir(place / "fd")), "threads": int(status["Threads"]),
            "cpu_s": (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK"),
        }  # fmt: skip

    def told(self) -> dict[str, Any]:
        """Return what the coordinator says of itself."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.status_port}/status", timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def close(self) -> None:
        """End all that is left."""
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        for process in self._running.values():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._logs.close()

    def _start(self, name: str, arguments: Sequence[str]) -> None:
        log = self._logs.enter_context((self.folder / f"{name}.log").open("ab"))
        self._running[name] = subprocess.Popen(
            [sys.executable, *arguments], cwd=ROOT, stdout=log, stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip


def until(found: Any) -> Any:
    """Wait for something to be there, and return it."""
    end = time.monotonic() + PATIENCE
    while not (value := found()):
        if time.monotonic() > end:
            raise TimeoutError("nothing happens")
        time.sleep(0.1)
    return value


def soak(shape: Shape, folder: Path, program: Sequence[str] = ("-m", "consilia")) -> Soak:
    """Let a run go on to its end, look at its processes meanwhile, and kill some.

    Args:
        shape: How large.
        folder: A fresh folder.
        program: What Python runs as the coordinator.
    """
    made = Soak(shape, folder)
    consortium(folder, shape.sites, ["olga"])
    kinds = ("drop", "delay", "repeat", "reorder", "corrupt")
    rates = "".join(f"{kind} = {rate}\n" for kind, rate in zip(kinds, shape.faults, strict=True))
    (folder / "hub" / "coordinator.toml").write_text(
        f'listen = "127.0.0.1:0"\nstatus = "127.0.0.1:0"\n[timing]\nheartbeat_seconds = 2\n[rehearsal]\n{rates}'
    )
    with running(folder, shape, program) as processes:
        first = canonical(travelling(from_text(shape.plan)))
        operator = Credentials.load(folder / "olga")
        call(f"127.0.0.1:{processes.port}", operator, {"do": "submit", "run": RUN, "plan": first})
        _watch(made, processes)
    return made


@contextlib.contextmanager
def running(folder: Path, shape: Shape, program: Sequence[str]) -> Iterator[Processes]:
    """Start everybody."""
    processes = Processes(folder, shape)
    try:
        processes.start_coordinator(program)
        for name in shape.sites:
            (folder / name / "site.toml").write_text(
                f'coordinator = "127.0.0.1:{processes.port}"\nretry_cap_seconds = 2\n[data.heart]\n'
            )
            (folder / name / "policy.toml").write_text(_POLICY)
        for names in shape.groups:
            processes.start_sites(names)
        until(lambda: all(site["connected"] for site in processes.told()["sites"]))
        yield processes
    finally:
        processes.close()


def _watch(made: Soak, processes: Processes) -> None:
    shape, looked, killed, seen = made.shape, 0, 0, time.monotonic()
    groups = shape.groups
    watched = {"coordinator": ["coordinator"], **{names[0]: names for names in groups[: len(shape.steady)]}}
    mortal = [names[0] for names in groups[len(shape.steady) :]]
    at = -1
    while True:
        run = processes.told()["runs"][0]
        if run["status"] not in ("queued", "running"):
            made.status, made.reason = run["status"], run["reason"]
            return
        if run["round"] != at:
            at, seen = run["round"], time.monotonic()
        elif time.monotonic() - seen > PATIENCE:
            raise TimeoutError(f"no round after round {at}")
        if at // shape.every > looked:
            looked = at // shape.every
            for name, who in watched.items():
                made.samples.setdefault(name, []).append({"round": at, **processes.look(name), **_disk(made, who)})
        if mortal and at // shape.kill > killed:
            name = mortal[killed % len(mortal)]
            killed = at // shape.kill
            processes.kill(name)
            made.kills[name] = made.kills.get(name, 0) + 1
            processes.start_sites([name])
        time.sleep(0.2)


def _disk(made: Soak, names: Sequence[str]) -> dict[str, float]:
    """Return what the databases of one process take: in files, in the longest write-ahead log, and in cached pages at most."""
    store, log, cached = 0.0, 0.0, 0.0
    for name in names:
        home = made.folder / ("hub" if name == "coordinator" else name) / "home"
        path = home / "coordinator.sqlite" if name == "coordinator" else home / "sites" / f"{name}.sqlite"
        ahead = path.with_name(path.name + "-wal")
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as sql:
            pages = sql.execute("PRAGMA page_count").fetchone()[0] * sql.execute("PRAGMA page_size").fetchone()[0]
        store += pages / 2**20
        cached += min(pages / 2**20, CACHE)
        log = max(log, ahead.stat().st_size / 2**20 if ahead.exists() else 0.0)
    return {"store_mb": store, "wal_mb": log, "cache_mb": cached}
