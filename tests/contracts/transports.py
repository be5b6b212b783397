"""Every way to move frames, behind one set of handles: what `test_transport` runs over."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from tests.transport.credentials.world import World
from tests.transport.link.inboxes import MemoryInbox
from tests.transport.link.waiting import until

from consilia.core.update import Bytes
from consilia.rounds.ports import Transport
from consilia.transport.credentials.credentials import Credentials
from consilia.transport.credentials.names import Role
from consilia.transport.faults import Faulty, Rates, seeded
from consilia.transport.grpc.link import GrpcLink
from consilia.transport.grpc.server import GrpcServer
from consilia.transport.inprocess import InProcess
from consilia.transport.link.courier import Courier
from consilia.transport.link.hub import Hub
from consilia.transport.link.ports import Link
from consilia.transport.longpoll.client import LongPoll
from consilia.transport.longpoll.server import LongPollServer

Handle = Callable[[Bytes], bytes]


@dataclass(frozen=True)
class Settings:
    """What a test asks of a transport."""

    heartbeat: float = 0.4
    floor: float = 1e6
    limit: int = 1 << 26


class Rig(Protocol):
    """A transport to sites that answer by functions."""

    transport: Transport


class Server(Protocol):
    """What listens for sites."""

    def close(self) -> None: ...


@dataclass
class Wired:
    """A hub, what listens for it, and couriers in threads that dial it: a real network under the contract.

    Attributes:
        serve: Listens at a port; 0: at any.
        dial: Makes a site's link to that port.
        inboxes: Outlive the couriers.
    """

    hub: Hub
    serve: "Callable[[int], tuple[Server, int]]"
    dial: Callable[[str, int], Link]
    handles: Mapping[str, Handle]
    folder: Path
    inboxes: dict[str, MemoryInbox] = field(default_factory=dict)
    left: list[tuple[str, bytes, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server, self.port = self.serve(0)
        self.running: dict[str, tuple[threading.Event, threading.Thread]] = {}
        self.transport: Transport = self.hub

    def start(self, site: str) -> None:
        """Start a site's courier, and wait until it is connected."""
        self.begin(site)
        until(lambda: self.connected(site))

    def begin(self, site: str, links: list[Link] | None = None) -> None:
        stop = threading.Event()
        courier = Courier(
            site, links or [self.dial(site, self.port)], self.inboxes.setdefault(site, MemoryInbox()), self.handles[site],
            spool=self.folder / site, leaves=lambda id, frame: self.left.append((site, id, frame)), retry_cap=0.5,
            clock=time.monotonic,
        )  # fmt: skip
        thread = threading.Thread(target=courier.run, args=(stop,), name=site)
        thread.start()
        self.running[site] = stop, thread

    def connected(self, site: str) -> bool:
        seen = self.hub.sites().get(site)
        return seen is not None and seen.connected

    def stop(self, site: str) -> None:
        """Stop a site's courier and wait for its end."""
        stop, thread = self.running.pop(site)
        stop.set()
        thread.join(20)
        assert not thread.is_alive()
        until(lambda: not self.connected(site))

    def stop_server(self) -> None:
        self.server.close()

    def start_server(self) -> None:
        self.server, _ = self.serve(self.port)

    def close(self) -> None:
        for stop, _ in self.running.values():
            stop.set()
        for _, thread in self.running.values():
            thread.join(20)
            assert not thread.is_alive()
        self.server.close()
        self.hub.close()


@dataclass
class Local:
    """The transport of simulations."""

    transport: Transport


Make = Callable[[Path, Mapping[str, Handle], Settings], AbstractContextManager[Rig]]
MakeWired = Callable[[Path, Mapping[str, Handle], Settings], AbstractContextManager[Wired]]


@contextlib.contextmanager
def in_process(folder: Path, handles: Mapping[str, Handle], settings: Settings) -> Iterator[Rig]:
    yield Local(InProcess(handles, time.monotonic))


Serve = Callable[[Hub, Credentials, str], GrpcServer | LongPollServer]
Dial = Callable[[str, Credentials], Link]


def wired(serve: Serve, dial: Dial) -> MakeWired:
    """Return what makes a network of this kind."""

    @contextlib.contextmanager
    def make(folder: Path, handles: Mapping[str, Handle], settings: Settings) -> Iterator[Wired]:
        roles: dict[str, Role] = {"hub": "coordinator", **dict.fromkeys(handles, "site")}
        world = World.made(folder / "consortium", datetime.now(UTC), roles)
        hub = Hub(folder / "spool", heartbeat=settings.heartbeat, upload_floor=settings.floor, clock=time.monotonic,
                  limit=settings.limit)  # fmt: skip

        def listen(port: int) -> tuple[Server, int]:
            server = serve(hub, world.load("hub"), f"127.0.0.1:{port}")
            return server, server.port

        rig = Wired(hub, listen, lambda site, port: dial(f"127.0.0.1:{port}", world.load(site)), handles, folder)
        try:
            yield rig
        finally:
            rig.close()

    return make


def faulty(make: Make) -> Make:
    """Return what makes this transport behind a rehearsal in which nothing happens: it must not be noticed."""

    @contextlib.contextmanager
    def behind(folder: Path, handles: Mapping[str, Handle], settings: Settings) -> Iterator[Rig]:
        with make(folder, handles, settings) as rig:
            quiet = Faulty(rig.transport, seeded(0, Rates()), time.monotonic, time.sleep)
            if isinstance(rig, Wired):
                rig.transport = quiet
            yield rig if isinstance(rig, Wired) else Local(quiet)

    return behind


grpc = wired(lambda hub, own, at: GrpcServer(hub, own, at, lambda entry, request: request), GrpcLink)
long_poll = wired(lambda hub, own, at: LongPollServer(hub, own, at, time.monotonic), LongPoll)
WIRED: dict[str, MakeWired] = {"grpc": grpc, "long-poll": long_poll}
TRANSPORTS: dict[str, Make] = {
    "in process": in_process, **WIRED, "faults, in process": faulty(in_process), "faults, grpc": faulty(grpc),
}  # fmt: skip
