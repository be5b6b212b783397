"""A site of the other kind: it holds a member's keys and speaks the protocol, and then does with its answers what it likes."""

import asyncio
import hashlib
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tests.faults.rig import Rig

from consilia.core.canonical import Json
from consilia.core.errors import TransportError
from consilia.core.wire import VERSION as WIRE
from consilia.transport.grpc.link import GrpcLink
from consilia.transport.link.packets import ID_SIZE, Beat, Begin, Hello, More, Packet, from_bytes, to_bytes

Reply = list[tuple[bytes, bytes]]  # (the message that is answered, the answer)


class Peer:
    """Runs in a thread, over real gRPC, under the name of one of the rig's sites.

    Args:
        rig: Whose site it takes the place of.
        name: The site.
        behave: (id of a message, the frame, its honest answer) -> what it answers to which message.
        wire: The wire version that it says it has.

    Attributes:
        ended: Why the coordinator ended its stream.
        heard: Packets that came, but for heartbeats and bytes of messages.
    """

    def __init__(
        self, rig: Rig, name: str, behave: Callable[[bytes, bytes, bytes], Reply], *, wire: int = WIRE
    ) -> None:
        self._rig, self._name, self._behave, self._wire = rig, name, behave, wire
        self.site, self.store = rig.fleet.open_site(name)
        self.ended = ""
        self.heard: list[Packet] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), name=f"peer {name}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join(20)
        assert not self._thread.is_alive()
        self.store.close()

    async def _live(self) -> None:
        talk = asyncio.ensure_future(self._talk())
        while not talk.done() and not self._over.is_set():
            await asyncio.sleep(0.02)
        talk.cancel()
        await asyncio.gather(talk, return_exceptions=True)

    async def _talk(self) -> None:
        link = GrpcLink(f"127.0.0.1:{self._rig.lines[self._name].port}", self._rig.world.load(self._name))
        stream = await link.connect()
        writing = asyncio.Lock()  # a stream takes one packet at a time

        async def send(packet: Packet) -> None:
            async with writing:
                await stream.send(to_bytes(packet))

        async def beat() -> None:
            while True:
                await send(Beat())
                await asyncio.sleep(0.1)

        beating = asyncio.ensure_future(asyncio.sleep(0))
        try:
            hello: dict[str, Json] = {"name": self._name, "wire": self._wire, "consilia": "0.0.1", "holds": {}}
            await send(Hello(hello))
            beating = asyncio.ensure_future(beat())
            parts: dict[bytes, tuple[int, bytes]] = {}
            while True:
                packet = from_bytes(await stream.receive(), who="peer")
                if isinstance(packet, Begin):
                    parts[packet.id] = (packet.total, bytes(packet.piece))
                elif isinstance(packet, More):
                    total, got = parts[packet.id]
                    parts[packet.id] = (total, got + bytes(packet.piece))
                elif not isinstance(packet, Beat):
                    self.heard.append(packet)
                for whole in [id for id, (total, got) in parts.items() if len(got) == total]:
                    _, frame = parts.pop(whole)
                    for to, answer in self._behave(whole, frame, self.site.handle(frame)):
                        digest = hashlib.sha256(answer).digest()
                        id = hashlib.sha256(to + digest).digest()[:ID_SIZE]
                        await send(Begin(id, to, len(answer), digest, 0, answer))
        except Exception as error:
            self.ended = str(error) if isinstance(error, TransportError) else repr(error)
            print(f"peer {self._name}: {self.ended}")  # shown where a test fails
        finally:
            beating.cancel()
            await stream.close()
