"""A TCP proxy that does to connections what networks do, told by a test while it runs.

It lives in a thread with a loop of its own. Each direction has its `Line`, whose settings are looked at for every piece of
bytes; what is done to all connections at once are methods of the proxy.
"""

import asyncio
import random
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

PIECE = 1 << 16
WAITING = 16  # pieces on their way in one direction: more, and the sender feels it
RESET = struct.pack("ii", 1, 0)  # SO_LINGER with no time: closing sends RST and forgets what was unsent


@dataclass
class Line:
    """One direction of every connection.

    Attributes:
        latency, jitter: Seconds each piece takes, and how much more at most.
        rate: Bytes a second; 0: no limit.
        swallow: Until this moment (monotonic) bytes are taken and thrown away.
        stopped: Nothing is read: the sender's window fills, as with a host that hangs.
        slices: Bytes of each write; 0: as they come.
        flip_at: The byte of a connection that comes out as another, once.
        cut_at: After so many bytes of a connection it is ended, once: by `cut_by`.
        close_after: Seconds between one end's close and the other's hearing of it.
        passed: Bytes that went through.
    """

    latency: float = 0.0
    jitter: float = 0.0
    rate: float = 0.0
    swallow: float = 0.0
    stopped: bool = False
    slices: int = 0
    flip_at: int | None = None
    cut_at: int | None = None
    cut_by: Literal["close", "reset"] = "reset"
    close_after: float = 0.0
    passed: int = 0


@dataclass(eq=False)
class Connection:
    """A caller and the target.

    Attributes:
        frozen: Nothing passes any more, and nobody is told.
    """

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    twin: asyncio.StreamWriter | None = None
    tasks: list["asyncio.Task[None]"] = field(default_factory=list)
    frozen: bool = False


class FaultProxy:
    """Listens on a port of its own on loopback and connects each caller to `target`.

    Attributes:
        up, down: From callers to the target, and back.
        refuse: New callers are reset at once.
        twice: New callers reach the target over two connections that send the same bytes; answers of the second are lost.
        accepted: Callers so far.
    """

    def __init__(self, target: int, seed: int = 0) -> None:
        self.up, self.down = Line(), Line()
        self.refuse = self.twice = False
        self.accepted = 0
        self._target = target
        self._random = random.Random(seed)
        self._open: set[Connection] = set()
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0, limit=PIECE))
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)
        self._thread.start()

    @property
    def open(self) -> int:
        """Connections that are open now."""
        return len(self._open)

    def swallow(self, seconds: float) -> None:
        """Take bytes both ways and deliver none for so long; connections stay up, and what was taken is lost."""
        self.up.swallow = self.down.swallow = time.monotonic() + seconds

    def hang(self, stopped: bool = True) -> None:
        """Stop reading from either end, or go on: what TCP makes of a line on which every packet is lost for a while."""
        self.up.stopped = self.down.stopped = stopped

    def freeze(self) -> None:
        """Leave the present connections half open: each end believes in the other, and nothing passes."""
        for connection in list(self._open):
            connection.frozen = True

    def reset(self) -> None:
        """End every open connection with RST, at both ends."""
        self._do(lambda: self._end_all(reset=True))

    def close(self) -> None:
        """End everything; the thread is gone afterwards."""
        self._do(lambda: self._end_all(reset=True))
        self._do(self._stop)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _do(self, work: Callable[[], Awaitable[None]]) -> None:
        async def call() -> None:
            await work()

        asyncio.run_coroutine_threadsafe(call(), self._loop).result(10)

    async def _stop(self) -> None:
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _end_all(self, *, reset: bool) -> None:
        for connection in list(self._open):
            self._end(connection, reset=reset)
        await asyncio.sleep(0.001)

    def _end(self, connection: Connection, *, reset: bool) -> None:
        self._open.discard(connection)
        for task in connection.tasks:
            if task is not asyncio.current_task():
                task.cancel()
        for writer in (connection.client, connection.server, connection.twin):
            if writer is not None:
                _shut(writer, reset=reset)

    async def _accept(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            if self.refuse:
                raise ConnectionRefusedError
            answers, server = await asyncio.open_connection("127.0.0.1", self._target, limit=PIECE)
        except OSError:
            _shut(client, reset=True)
            return
        connection = Connection(client, server)
        targets = [server]
        if self.twice:
            lost, connection.twin = await asyncio.open_connection("127.0.0.1", self._target, limit=PIECE)
            targets.append(connection.twin)
            connection.tasks.append(self._loop.create_task(_throw_away(lost)))
        self._open.add(connection)
        connection.tasks.append(self._loop.create_task(self._pump(connection, self.up, reader, targets)))
        connection.tasks.append(self._loop.create_task(self._pump(connection, self.down, answers, [client])))

    async def _pump(
        self, connection: Connection, line: Line, reader: asyncio.StreamReader, writers: list[asyncio.StreamWriter]
    ) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(WAITING)
        feeding = self._loop.create_task(self._feed(connection, line, reader, queue))
        connection.tasks.append(feeding)
        try:
            count = 0
            while True:
                due, piece = await queue.get()
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                if not piece:
                    await asyncio.sleep(line.close_after)
                    self._end(connection, reset=False)
                    return
                left = None if line.cut_at is None else line.cut_at - count
                for part in _sliced(_flipped(line, piece[:left] if left is not None else piece, count), line.slices):
                    if line.rate:
                        await asyncio.sleep(len(part) / line.rate)
                    line.passed += len(part)
                    writers[0].write(part)
                    await writers[0].drain()
                    for twin in writers[1:]:
                        if not twin.transport.is_closing():  # what happens to the second one is no concern of the first
                            twin.write(part)
                    if line.slices:
                        await asyncio.sleep(0.001)  # or the receiver sees them as one
                count += len(piece)
                if left is not None and left <= len(piece):
                    line.cut_at = None
                    self._end(connection, reset=line.cut_by == "reset")
                    return
        except (ConnectionError, OSError):
            self._end(connection, reset=True)

    async def _feed(
        self,
        connection: Connection,
        line: Line,
        reader: asyncio.StreamReader,
        queue: "asyncio.Queue[tuple[float, bytes]]",
    ) -> None:
        while True:
            await _while_stopped(line, connection)
            try:
                piece = await reader.read(PIECE if not line.rate else max(1, min(PIECE, int(line.rate / 20))))
            except OSError:
                piece = b""
            if piece and time.monotonic() < line.swallow:
                continue
            # A piece that was being read when the line stopped waits with the rest.
            await _while_stopped(line, connection)
            await queue.put((time.monotonic() + line.latency + self._random.random() * line.jitter, piece))
            if not piece:
                return


def _sliced(piece: bytes, size: int) -> list[bytes]:
    return [piece[at : at + size] for at in range(0, len(piece), size)] if size else [piece]


def _flipped(line: Line, piece: bytes, count: int) -> bytes:
    if line.flip_at is None or not count <= line.flip_at < count + len(piece):
        return piece
    at, line.flip_at = line.flip_at - count, None
    return piece[:at] + bytes([piece[at] ^ 0x01]) + piece[at + 1 :]


async def _while_stopped(line: Line, connection: Connection) -> None:
    while line.stopped or connection.frozen:
        await asyncio.sleep(0.005)


async def _throw_away(reader: asyncio.StreamReader) -> None:
    try:
        while await reader.read(PIECE):
            pass
    except OSError:
        pass


def _shut(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    if writer.transport.is_closing():
        return
    if reset:
        raw: socket.socket = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        writer.transport.abort()
    else:
        writer.close()
