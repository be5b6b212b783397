"""A server's connections, so that none is left open when it ends."""

import asyncio
import contextlib
import socket
from typing import Final
from weakref import WeakKeyDictionary

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

_TURNS: Final = (
    10  # of the loop: after them an accepted connection is in its handshake, and one given up has closed its socket
)


class Connections:
    """Notes a server's connections: aiohttp forgets one whose TLS waits for the goodbye of an end that will not answer."""

    def __init__(self, server: web.Server) -> None:
        self._sockets: WeakKeyDictionary[asyncio.Transport, socket.socket] = WeakKeyDictionary()
        made = server.connection_made

        def noting(handler: RequestHandler, transport: asyncio.Transport) -> None:
            self._sockets[transport] = transport.get_extra_info("socket")
            made(handler, transport)

        server.connection_made = noting  # type: ignore[method-assign]

    async def abort(self) -> None:
        """Give up all of them, those in their handshake too; the server listens no more."""
        await _turns()
        handshakes = asyncio.all_tasks() - {asyncio.current_task()}
        for task in handshakes:
            task.cancel()
        await asyncio.gather(*handshakes, return_exceptions=True)
        for transport, end in list(self._sockets.items()):
            transport.abort()
            with contextlib.suppress(OSError):  # asyncio aborts nothing that was closed twice
                end.shutdown(socket.SHUT_RDWR)
        await _turns()


async def _turns() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)
