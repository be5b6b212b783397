"""A site's end of HTTPS long-polling: a `Link` that passes where only requests to a web server pass."""

import asyncio
import contextlib
import io
import json
import secrets
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakSet

import aiohttp

from consilia.core.canonical import canonical_bytes
from consilia.core.errors import Problem, TransportError
from consilia.transport.credentials.credentials import Credentials
from consilia.transport.credentials.newest import Newest
from consilia.transport.link.ports import Stream
from consilia.transport.longpoll.batches import ENOUGH, MOST_BODY, cost, pack, unpack
from consilia.transport.longpoll.server import DOWN, END, NUMBER, OPEN, SESSION, SIGNATURE, UP
from consilia.transport.longpoll.signing import NONCE, Method, Request
from consilia.transport.longpoll.tls import client_context

_CONNECT: Final = 15.0  # seconds for a connection, through a proxy and with TLS
_GOODBYE: Final = 2.0
_T = TypeVar("_T")
_QUEUED: Final = 8  # packets that wait for the present request to end


class LongPoll:
    """A way to the coordinator by HTTPS requests.

    Args:
        address: "host:port" of the coordinator.
        credentials: The site's own; a newer roster in their folder counts without a restart.
        proxy: "http://host:port" of the proxy on the way, with "user:password@" where it asks for them. None: what HTTPS_PROXY
            and NO_PROXY say.
        trust: Certificates, PEM, of the authority of a proxy that inspects what passes.
    """

    def __init__(
        self, address: str, credentials: Credentials, *, proxy: str | None = None, trust: Path | None = None
    ) -> None:
        self._address = address
        self._newest = Newest(credentials)
        self._proxy = proxy
        self._trust = trust

    @property
    def where(self) -> str:
        """The address, for people."""
        return f"https://{self._address}"

    async def connect(self) -> Stream:
        """Open a session.

        Raises:
            TransportError: If the coordinator cannot be reached, refuses this site, or is another one.
        """
        credentials = await self._newest.read()
        caller = Caller(
            credentials, self._address, self._proxy, client_context(credentials, self._trust), self._trust is None
        )
        try:
            body = canonical_bytes({"site": credentials.name})
            session = await caller.call("POST", OPEN, secrets.token_bytes(NONCE), 0, body)
            return _LongPollStream(caller, session, lambda: self._newest.require_same(credentials))
        except BaseException:
            await caller.close()
            raise


class Caller:
    """Sends signed requests and takes signed answers only.

    Args:
        credentials: The site's.
        address: "host:port" of the coordinator.
        proxy: Of HTTP, on the way; None: what the environment says.
        tls: Whom to believe in TLS.
        direct: Whether TLS reaches to the coordinator itself.
    """

    def __init__(
        self, credentials: Credentials, address: str, proxy: str | None, tls: ssl.SSLContext, direct: bool
    ) -> None:
        self._signing = credentials.identity.signing
        self._coordinator = credentials.book.coordinator
        self._address = address
        self._proxy = proxy
        # The coordinator's certificate carries its name in the consortium, wherever it is reached.
        self._name = self._coordinator.dns if direct else None
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls, limit=4, socket_factory=self._socket), trust_env=proxy is None,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT), cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )  # fmt: skip

    async def call(self, method: Method, path: str, session: bytes, number: int, body: bytes = b"") -> bytes:
        """Send a request and return the coordinator's answer.

        Raises:
            TransportError: If it does not come through, is refused, or the answer is not the coordinator's.
        """
        request = Request(method, path, session, number, body, self._coordinator.verifying)
        headers = {
            SESSION: session.hex(),
            NUMBER: str(number),
            SIGNATURE: request.sign(self._signing).hex(),
            "Content-Type": "application/octet-stream",
            "Accept-Encoding": "identity",
        }
        data = io.BytesIO(body) if body else None
        try:
            async with self._http.request(
                method, f"https://{self._address}{path}", data=data, headers=headers, proxy=self._proxy,
                server_hostname=self._name, allow_redirects=False,
            ) as response:  # fmt: skip
                answer, status, claimed = await _content(response), response.status, response.headers.get(SIGNATURE, "")
        except aiohttp.ClientHttpProxyError as error:
            raise self._fault("a proxy that lets HTTPS pass", f"HTTP status {error.status} ({error.message}) from it",
                              'Check the setting "proxy", and whether the proxy knows this address') from None  # fmt: skip
        except ssl.SSLCertVerificationError as error:
            raise self._distrust(error) from None
        except aiohttp.ClientConnectorCertificateError as error:
            raise self._distrust(error.certificate_error) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._fault("an answer", str(error) or type(error).__name__, "It is tried again") from None
        if not request.answered_by(self._coordinator.verifying, status, answer, _hex(claimed)):
            raise self._fault(f"answers that {self._coordinator.name} has signed", f"one of status {status} that it has not",
                              "Something on the way answers in its place or changes what passes")  # fmt: skip
        if status != 200:
            raise TransportError(_problems(answer))
        return answer

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()
        # A request that was given up says goodbye in TLS and waits for an answer, which may never come.
        for one in list(self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        while any(one.fileno() >= 0 for one in list(self._sockets)):
            await asyncio.sleep(0)

    def _socket(self, info: tuple[Any, ...]) -> socket.socket:
        made = socket.socket(*info[:3])
        self._sockets.add(made)
        return made

    def _fault(self, needs: str, got: str, hint: str) -> TransportError:
        return TransportError.of(f"the way to https://{self._address}", needs=needs, got=got, hint=hint)

    def _distrust(self, error: Exception) -> TransportError:
        why = getattr(error, "verify_message", "") or str(error)
        return self._fault("a certificate that this site believes", why,
                           'If a proxy inspects what passes, set "trust" to its authority\'s certificate')  # fmt: skip


class _LongPollStream:
    """Packets over a session: one request up and one down at a time.

    Args:
        caller: Sends the requests.
        session: Its id.
        check: Raises where the session's certificates no longer count.
    """

    def __init__(self, caller: Caller, session: bytes, check: Callable[[], Awaitable[None]]) -> None:
        self._caller = caller
        self._check = check
        self._session = session
        self._numbers = {"GET": 0, "POST": 0}
        self._out: asyncio.Queue[bytes] = asyncio.Queue(_QUEUED)
        self._in: asyncio.Queue[bytes] = asyncio.Queue(_QUEUED)
        self._tasks = [asyncio.ensure_future(task()) for task in (self._up, self._down)]

    async def send(self, packet: bytes) -> None:
        """Queue a packet; waits while too many are queued."""
        await self._check()
        await self._unless_over(self._out.put(packet))

    async def receive(self) -> bytes:
        """Wait for a packet."""
        return self._in.get_nowait() if not self._in.empty() else await self._unless_over(self._in.get())

    async def close(self) -> None:
        """End the session, so that the coordinator need not wait for its heartbeats to stay away."""
        with contextlib.suppress(TransportError, TimeoutError):  # it is noticed all the same, a little later
            async with asyncio.timeout(_GOODBYE):
                if not any(task.done() for task in self._tasks):
                    await self._call("POST", END)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._caller.close()

    async def _up(self) -> None:
        while True:
            batch = [await self._out.get()]
            while not self._out.empty() and sum(map(cost, batch)) < ENOUGH:
                batch.append(self._out.get_nowait())
            await self._call("POST", UP, pack(batch))

    async def _down(self) -> None:
        while True:
            for packet in unpack(await self._call("GET", DOWN), who="the site"):
                await self._in.put(packet)

    async def _call(self, method: Method, path: str, body: bytes = b"") -> bytes:
        self._numbers[method] += 1
        return await self._caller.call(method, path, self._session, self._numbers[method], body)

    async def _unless_over(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Wait for work, or until a request has failed."""
        doing = asyncio.ensure_future(work)
        try:
            await asyncio.wait({doing, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                for task in self._tasks:
                    if task.done():
                        task.result()
        finally:
            doing.cancel()
        return doing.result()


async def _content(response: aiohttp.ClientResponse) -> bytes:
    parts, size = list[bytes](), 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > MOST_BODY:
            raise ValueError(f"an answer of more than {MOST_BODY} bytes")
    return b"".join(parts)


def _hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def _problems(answer: bytes) -> list[Problem]:
    try:
        return [Problem(*map(str, parts)) for parts in json.loads(answer)]
    except (ValueError, TypeError):
        return [Problem("this site", "a coordinator of its own version", "a refusal that cannot be read",
                        "Install the same version of consilia at both ends")]  # fmt: skip
