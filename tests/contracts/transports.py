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
from consilia.transport.grpc.link import GrpcLink
from consilia.transport.grpc.server import GrpcServer
from consilia.transport.inprocess import InProcess
from consilia.transport.link.courier import Courier
from consilia.transport.link.hub import Hub
from consilia.transport.link.ports import Link

Handle = Callable[[Bytes], bytes]


@dataclass(frozen=True)
class Settings:
    """What a test asks of a transport."""

    heartbeat: float = 0.4
    floor: float = 1e6
    limit: int = 1 << 26


class Rig(Protocol):
    """A transport to sites that answer by functions."""

    @property
    def transport(self) -> Transport: ...


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

    @property
    def transport(self) -> Transport:
        return self.hub

    def start(self, site: str) -> None:
        """Start a site's courier, and wait until it is connected."""
        self.begin(site)
        until(lambda: self.connected(site))

    def begin(self, site: str, links: list[Link] | None = None) -> None:
        stop = threading.Event()
        courier = Courier(
            site, links or [self.dial(site, self.port)], self.inboxes.setdefault(site, MemoryInbox()), self.handles[site],
            spool=self.folder / site, hello={}, leaves=lambda id, frame: self.left.append((site, id, frame)), retry_cap=0.5,
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


@contextlib.contextmanager
def grpc(folder: Path, handles: Mapping[str, Handle], settings: Settings) -> Iterator[Wired]:
    world = World(folder / "consortium", datetime.now(UTC), {"hub": "coordinator", **dict.fromkeys(handles, "site")})
    hub = Hub(folder / "spool", heartbeat=settings.heartbeat, upload_floor=settings.floor, clock=time.monotonic,
              limit=settings.limit)  # fmt: skip

    def serve(port: int) -> tuple[Server, int]:
        server = GrpcServer(hub, world.load("hub"), f"127.0.0.1:{port}", lambda entry, request: request)
        return server, server.port

    def dial(site: str, port: int) -> Link:
        return GrpcLink(f"127.0.0.1:{port}", world.load(site))

    wired = Wired(hub, serve, dial, handles, folder)
    try:
        yield wired
    finally:
        wired.close()


WIRED: dict[str, MakeWired] = {"grpc": grpc}
TRANSPORTS: dict[str, Make] = {"in process": in_process, **WIRED}
