"""A site that says exactly what a test wants, packet by packet, to a hub whose clock the test turns."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from consilia.core.canonical import Json
from consilia.core.update import Gone
from consilia.core.wire import VERSION as WIRE
from consilia.rounds.ports import Arrival
from consilia.transport.link.hub import Hub
from consilia.transport.link.packets import Begin, Done, Hello, Packet, Refuse, Welcome, from_bytes, to_bytes

HEARTBEAT = 0.2


class Clock:
    """Stands still until it is turned."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def hub_of(folder: Path, clock: Clock, *, floor: float = 1000.0, limit: int = 1 << 26) -> Iterator[Hub]:
    hub = Hub(folder / "spool", heartbeat=HEARTBEAT, upload_floor=floor, clock=clock, limit=limit)
    try:
        yield hub
    finally:
        hub.close()


class Peer:
    """One stream of a site."""

    def __init__(self, hub: Hub, name: str = "a") -> None:
        self.name = name
        self.closed: list[str] = []
        self.session = hub.attach(name, lambda: None, self.closed.append)

    def greet(self, **body: Json) -> Welcome:
        self.say(Hello({"name": self.name, "consilia": "1", "wire": WIRE, "holds": {}, **body}))
        welcome = self.heard()
        assert isinstance(welcome, Welcome)
        return welcome

    def say(self, *packets: Packet) -> None:
        for packet in packets:
            self.session.receive(to_bytes(packet))

    def heard(self) -> Packet | None:
        raw = self.session.next()
        return None if raw is None else from_bytes(raw, who="test")

    def all_heard(self) -> list[Packet]:
        found = []
        while (packet := self.heard()) is not None:
            found.append(packet)
        return found

    def task(self) -> Begin:
        """Return the task that comes next, received whole in one packet."""
        packet = self.heard()
        assert isinstance(packet, Begin)
        self.say(Done(packet.id))
        return packet

    def answers(self, task: Begin, frame: bytes, id: bytes = bytes(15) + b"1") -> list[Packet]:
        """Answer in one packet; return what the hub says to that."""
        self.say(Begin(id, task.id, len(frame), hashlib.sha256(frame).digest(), 0, frame))
        return [packet for packet in self.all_heard() if isinstance(packet, Done | Refuse)]


class Round:
    """Takes a hub's events in a thread, while a test turns the clock."""

    def __init__(self, hub: Hub, timeout: float, of: list[str] | None = None) -> None:
        self.events: list[Arrival | Gone] = []
        self._thread = threading.Thread(target=lambda: self.events.extend(hub.events(timeout, of)))
        self._thread.start()

    def over(self) -> bool:
        return not self._thread.is_alive()

    def end(self) -> list[Arrival | Gone]:
        self._thread.join(20)
        assert self.over()
        return self.events
