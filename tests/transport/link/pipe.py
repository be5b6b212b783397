"""A link without a network, between a hub and a courier in one process, that breaks when it is told to."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator

from consilia.core.errors import ConsiliaError, TransportError
from consilia.transport.link.hub import Hub


class Pipe:
    """Dials a hub; each stream carries as many packets as the next number says, then it breaks."""

    where = "the pipe"

    def __init__(self, hub: Hub, site: str, lives: Iterator[int]) -> None:
        self._hub, self._site, self._lives = hub, site, lives
        self.streams = 0

    async def connect(self) -> "PipeStream":
        self.streams += 1
        return PipeStream(self._hub, self._site, next(self._lives))


class PipeStream:
    def __init__(self, hub: Hub, site: str, life: int) -> None:
        self._life = life
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._ready = asyncio.Event()
        self._why = ""
        self._session = hub.attach(site, self._wake, self._over)

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the courier has ended
            self._loop.call_soon_threadsafe(self._ready.set)

    def _over(self, why: str) -> None:
        self._why = why
        self._wake()

    def _count(self) -> None:
        self._life -= 1
        if self._life < 0:
            self._why = "cut"
        if self._why:
            raise TransportError.of("the pipe", needs="to hold", got=self._why, hint="")

    async def send(self, packet: bytes) -> None:
        self._count()
        try:
            self._session.receive(packet)
        except ConsiliaError as error:
            self._why = str(error)
            self._count()

    async def receive(self) -> bytes:
        while True:
            self._ready.clear()
            if self._why:
                self._count()
            packet = self._session.next()
            if packet is not None:
                self._count()
                return packet
            await self._ready.wait()

    async def close(self) -> None:
        self._session.end()
