"""A coordinator and its sites as they run in the field, in one process: gRPC with mutual TLS over loopback, each site's line
through a proxy that a test commands, real ledgers and journals; only the learner is small.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.faults.proxy import FaultProxy
from tests.promises.fleet import COUNTS, RUN, Case, Fleet, entropy_for, with_stores
from tests.transport.credentials.world import World
from tests.transport.link.waiting import until

from consilia.core.update import Bytes, ProtocolMessage, Release, Vector
from consilia.core.wire import decode
from consilia.rounds.coordinator import Coordinator
from consilia.rounds.ports import Transport
from consilia.rounds.site import Site
from consilia.store.journal import Journal
from consilia.store.ledger_store import SiteStore
from consilia.transport.credentials.names import Role
from consilia.transport.grpc.link import GrpcLink
from consilia.transport.grpc.server import GrpcServer
from consilia.transport.inprocess import InProcess
from consilia.transport.link.courier import Courier
from consilia.transport.link.hub import Hub

BEAT = 0.5
Hook = Callable[[ProtocolMessage, Callable[[], bytes]], bytes]


def members(folder: Path) -> World:
    """Found the consortium whose sites are those of the fleet; the clocks of its members may be a week apart."""
    roles: dict[str, Role] = {"coordinator": "coordinator", **dict.fromkeys(COUNTS, "site")}
    return World.made(folder, datetime.now(UTC) - timedelta(days=7), roles)


@dataclass
class Running:
    """A site that is up."""

    site: Site
    store: SiteStore
    thread: threading.Thread
    stop: threading.Event = field(default_factory=threading.Event)


class Rig:
    """One run.

    Attributes:
        lines: Each site's line to the coordinator.
        hooks: What a test puts between a site's messages and its answers: takes the task, and what answers it.
        answers: (site, frame) of what each site answered, before a hook made something else of it.
        left: (site, frame) of what was about to leave.
        asked: (site, kind or stage, round) of every task that a site was handed.
    """

    def __init__(self, case: Case, folder: Path, world: World, shelf: Path, heartbeat: float) -> None:
        self.case, self.folder, self.world, self.shelf = case, folder, world, shelf
        self.fleet = Fleet(case, with_stores(case, folder / "run", shelf), entropy_for(case, 1))
        self.hub = Hub(folder / "spool", heartbeat=heartbeat, upload_floor=20_000.0, clock=time.monotonic)
        self.server = GrpcServer(self.hub, world.load("coordinator"), "127.0.0.1:0", lambda entry, request: request)
        self.lines = {name: FaultProxy(self.server.port) for name in case.names}
        self.hooks: dict[str, Hook] = {}
        self.left: list[tuple[str, bytes]] = []
        self.answers: list[tuple[str, bytes]] = []
        self.asked: list[tuple[str, str, int]] = []
        self.transport: Transport = self.hub
        self.running: dict[str, Running] = {}
        self.journal: Journal | None = None
        self.coordinator: Coordinator | None = None

    def start(self, *names: str, port: int | None = None) -> "Rig":
        """Start these sites, or all, and wait until they are there."""
        for name in names or self.case.names:
            site, store = self.fleet.open_site(name)
            at = f"127.0.0.1:{port or self.lines[name].port}"
            courier = Courier(
                name, [GrpcLink(at, self.world.load(name))], store.inbox, self._handle(name, site),
                spool=self.folder / name, leaves=self._note(name), retry_cap=0.4, clock=time.monotonic,
            )  # fmt: skip
            running = Running(site, store, threading.Thread(name=name))
            running.thread = threading.Thread(target=courier.run, args=(running.stop,), name=name)
            running.thread.start()
            self.running[name] = running
        until(lambda: all(self.connected(name) for name in names or self.case.names))
        return self

    def connected(self, name: str) -> bool:
        seen = self.hub.sites().get(name)
        return seen is not None and seen.connected

    def stop(self, *names: str) -> None:
        """Stop these sites."""
        for name in names:
            self.running[name].stop.set()
        for name in names:
            one = self.running.pop(name)
            one.thread.join(20)
            assert not one.thread.is_alive()
            one.store.close()

    def cut(self, name: str) -> None:
        """Break a site's line, and let it come back no more."""
        self.lines[name].refuse = True
        self.lines[name].reset()

    def mend(self, name: str) -> None:
        """Let a site come back."""
        self.lines[name].refuse = False

    def _note(self, name: str) -> Callable[[bytes, bytes], None]:
        return lambda _, frame: self.left.append((name, frame))

    def _handle(self, name: str, site: Site) -> Callable[[Bytes], bytes]:
        def handle(frame: Bytes) -> bytes:
            task = decode(frame, who="rig")
            assert isinstance(task, ProtocolMessage)
            self.asked.append((name, step_of(task), task.round))

            def answer() -> bytes:
                self.answers.append((name, site.handle(frame)))
                return self.answers[-1][1]

            return self.hooks.get(name, honest)(task, answer)

        return handle

    def run(
        self, on_round: Callable[[dict[str, Any]], object] | None = None, *, sound: bool = True
    ) -> list[dict[str, Any]]:
        """Lead the run to its end and check that it is sound; return its records."""
        self.journal = self.fleet.open_journal()
        self.coordinator = coordinator = self.fleet.coordinator(self.journal, self.transport, time.monotonic)
        coordinator.train(None if on_round is None else lambda record: void(on_round(record)))
        self.fleet.finish(coordinator, self.journal)
        self.model = coordinator.state.model
        if sound:
            self.sound()
        return self.journal.records()

    def sound(self) -> None:
        """Check what holds after every fault: an end, a reason for each turn that was lost, and no charge too few."""
        assert self.journal is not None
        assert self.journal.status in ("done", "stopped", "failed")
        for record in self.journal.records():
            if record["status"] == "counted":
                assert set(record["answered"]) | set(record["dropped"]) == set(record["asked"])
            assert all(record["dropped"].values())
            assert record["status"] == "counted" or record["reason"]
        for name in self.case.names:
            released = self.released(name)
            charged = self.charged(name)
            assert charged >= released, (name, charged, released)

    def charged(self, name: str) -> int:
        """Count what a site's ledger has charged."""
        if name in self.running:
            return sum(count for _, count in self.running[name].store.charged(RUN))
        with SiteStore.open(self.fleet.site_path(name), name) as store:
            return sum(count for _, count in store.charged(RUN))

    def released(self, name: str) -> int:
        """Count what a site gave away that its plan charges for."""
        half = self.fleet.plan.site(name)
        found = set()
        for site, frame in self.answers:
            item = decode(frame, who="rig")
            if site != name or not isinstance(item, Release):
                continue
            event = half.charge.round_events[0] if item.payload else half.charge.evaluation_event
            if event is not None:
                found.add((item.round, bool(item.payload)))
        return len(found)

    def close(self) -> None:
        for line in self.lines.values():
            line.hang(False)
        self.stop(*self.running)
        for line in self.lines.values():
            line.close()
        self.server.close()
        self.hub.close()
        if self.journal is not None:
            self.journal.close()


def void(_: object) -> None:
    """Forget what a callback returned."""


def honest(task: ProtocolMessage, answer: Callable[[], bytes]) -> bytes:
    """Answer as the site does."""
    return answer()


def in_process(case: Case, folder: Path, shelf: Path) -> Vector:
    """Return the model that this run comes to in one process, without any network."""
    fleet = Fleet(case, with_stores(case, folder, shelf), entropy_for(case, 1))
    sites = {name: fleet.open_site(name) for name in case.names}
    handles = {name: site.handle for name, (site, _) in sites.items()}
    try:
        with fleet.open_journal() as journal:
            coordinator = fleet.coordinator(journal, InProcess(handles, time.monotonic), time.monotonic)
            coordinator.train()
            return coordinator.state.model
    finally:
        for _, store in sites.values():
            store.close()


def dropped(records: list[dict[str, Any]]) -> list[set[str]]:
    """Return whose turn was lost, round by round."""
    for record in records:
        print(record["round"], record["status"], record["reason"], record["dropped"])  # shown where a test fails
    return [set(record["dropped"]) for record in records]


def all_back(rig: Rig) -> Callable[[object], None]:
    """Wait, between two rounds, until every site is there."""
    return lambda _: until(lambda: all(rig.connected(name) for name in rig.case.names))


def step_of(task: ProtocolMessage) -> str:
    """Return which step a task is: a stage of a sum, or its kind."""
    return str(task.body.get("stage", task.kind))


@contextmanager
def rig(case: Case, folder: Path, world: World, shelf: Path, heartbeat: float) -> Iterator[Rig]:
    one = Rig(case, folder, world, shelf, heartbeat)
    try:
        yield one
    finally:
        one.close()


def once(condition: Callable[[ProtocolMessage], bool], fault: Callable[[Callable[[], bytes]], bytes]) -> Hook:
    """Do this to the first task for which the condition holds."""
    left = [True]

    def hook(task: ProtocolMessage, answer: Callable[[], bytes]) -> bytes:
        if left[0] and condition(task):
            left[0] = False
            return fault(answer)
        return answer()

    return hook


def at(step: str, number: int, purpose: str = "update") -> Callable[[ProtocolMessage], bool]:
    """Say whether a task is this step of this round."""
    return lambda task: step_of(task) == step and task.round == number and task.body.get("purpose", purpose) == purpose
