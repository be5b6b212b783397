"""A coordinator and a site that talk by HTTPS requests, and what may stand between them."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.transport.credentials.world import World

from consilia.core.errors import ProtocolError
from consilia.core.update import Bytes, Gone
from consilia.rounds.ports import Arrival
from consilia.transport.link.courier import Courier
from consilia.transport.link.hub import Hub
from consilia.transport.link.ports import Link
from consilia.transport.longpoll.server import LongPollServer

BEAT = 0.5


class Memory:
    """An inbox of a process that does not end."""

    def __init__(self) -> None:
        self.known: dict[bytes, bytes] = {}
        self.answers: dict[bytes, bytes] = {}

    def seen(self, id: bytes, digest: bytes) -> bytes | None:
        if self.known.get(id, digest) != digest:
            raise ProtocolError.of("inbox", needs="the same bytes", got="others", hint="")
        return self.answers.get(id)

    def begin(self, id: bytes, digest: bytes) -> None:
        self.known[id] = digest

    def keep(self, id: bytes, answer: bytes) -> None:
        self.answers[id] = answer


def echo(frame: Bytes) -> bytes:
    return b"re " + bytes(frame)


class Stage:
    """The coordinator's half: members in folders, a hub, a server."""

    def __init__(self, folder: Path, wait: float = 25.0) -> None:
        self.folder = folder
        self.world = World.made(folder / "world", datetime.now(UTC) - timedelta(hours=1))
        self.hub = Hub(folder / "hub", heartbeat=BEAT, upload_floor=1e5, clock=time.monotonic)
        self.server = LongPollServer(self.hub, self.world.load("hub"), "127.0.0.1:0", time.monotonic, wait=wait)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def close(self) -> None:
        self.hub.close()
        self.server.close()

    @contextmanager
    def site(self, name: str, link: Link, handle: Callable[[Bytes], bytes] = echo) -> Iterator[Courier]:
        courier = Courier(
            name, [link], Memory(), handle, spool=self.folder / name, leaves=lambda id, frame: None,
            retry_cap=0.4, clock=time.monotonic,
        )  # fmt: skip
        stop = threading.Event()
        thread = threading.Thread(target=courier.run, args=(stop,), name=f"site {name}")
        thread.start()
        try:
            yield courier
        finally:
            stop.set()
            thread.join(20)
            assert not thread.is_alive()

    def ask(self, *frames: bytes, site: str = "north", timeout: float = 10.0) -> list[bytes | str]:
        """Send frames to a site; return its answers, and reasons where there is none."""
        for frame in frames:
            self.hub.send(site, frame)
        return [
            bytes(event.frame) if isinstance(event, Arrival) else event.reason for event in self.hub.events(timeout)
        ]

    def connected(self, site: str = "north") -> bool:
        seen = self.hub.sites().get(site)
        return seen is not None and seen.connected


def until(condition: Callable[[], bool], seconds: float = 8.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.01)


__all__ = ["BEAT", "Gone", "Memory", "Stage", "echo", "until"]
