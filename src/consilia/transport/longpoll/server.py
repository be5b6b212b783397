"""The coordinator's end of HTTPS long-polling: sites post their packets, and wait for the coordinator's."""

import asyncio
import contextlib
import json
import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final, cast

from aiohttp import web

from consilia.core.canonical import Json, canonical_bytes
from consilia.core.errors import ConsiliaError, ProtocolError, TransportError
from consilia.rounds.ports import Clock
from consilia.transport.credentials.credentials import Credentials
from consilia.transport.credentials.names import Role
from consilia.transport.credentials.tls import present
from consilia.transport.link.hub import Hub
from consilia.transport.link.session import Session as Stream
from consilia.transport.longpoll.batches import ENOUGH, MOST_BODY, cost, pack, unpack
from consilia.transport.longpoll.connections import Connections
from consilia.transport.longpoll.signing import Method, Request, Session, Sessions
from consilia.transport.longpoll.tls import server_context

_log = logging.getLogger("consilia.longpoll")
OPEN, UP, DOWN, END = (f"/consilia/1/{name}" for name in ("open", "up", "down", "end"))
SESSION, NUMBER, SIGNATURE = "Consilia-Session", "Consilia-Number", "Consilia-Signature"
_ROLES: tuple[Role, ...] = ("site",)
_IDLE: Final = 120.0  # seconds after which a session without requests is over
_WAIT: Final = 25.0  # seconds: proxies end requests that take a minute


@dataclass(eq=False)
class _Line:
    """A session's stream at the hub.

    Attributes:
        stream: What the hub gave.
        ready: Set when it may have something to send.
        over: Why it has ended; empty: the site has ended it.
        waiting: Whether a request for packets waits.
    """

    stream: Stream
    ready: asyncio.Event
    over: str | None = None
    waiting: bool = False


class _EndedError(TransportError):
    """The coordinator has ended a session while its site waited for packets."""


class LongPollServer:
    """Serves HTTPS in a thread with a loop of its own.

    Args:
        hub: Where sites are attached.
        credentials: The coordinator's.
        address: "host:port"; port 0 takes a free one.
        clock: Monotonic seconds.
        wait: Seconds that a request for packets waits at most.

    Attributes:
        port: Where it listens.

    Raises:
        TransportError: If it cannot listen there.

    Guarantees:
        No packet reaches the hub but from a site that the roster names today, signed by it, once, and in the session that it
        was meant for. What a site accepts comes from this coordinator in answer to that very request.
    """

    def __init__(self, hub: Hub, credentials: Credentials, address: str, clock: Clock, *, wait: float = _WAIT) -> None:
        self._hub = hub
        self._credentials = credentials
        self._clock = clock
        self._wait = wait
        self._lines: dict[bytes, _Line] = {}
        self._sessions = Sessions(
            self._key, coordinator=credentials.identity.signing.public, draw=secrets.token_bytes, closed=self._closed
        )
        self._tls = server_context(credentials)
        self._loop = asyncio.new_event_loop()
        try:
            self.port = self._loop.run_until_complete(self._start(address))
        except BaseException:
            self._loop.close()
            raise
        self._thread = threading.Thread(target=self._loop.run_forever, name="long-poll server", daemon=True)
        self._thread.start()

    def reload(self, credentials: Credentials) -> None:
        """Go by another version of the roster, and by a renewed certificate, from the next request and connection on."""

        def adopt() -> None:
            self._credentials = credentials
            present(self._tls, credentials)

        self._loop.call_soon_threadsafe(adopt)

    def close(self) -> None:
        """End all sessions and listen no more."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self, address: str) -> int:
        host, _, port = address.rpartition(":")
        app = web.Application(client_max_size=MOST_BODY)
        app.add_routes([
            web.post(OPEN, self._handle), web.post(UP, self._handle), web.get(DOWN, self._handle), web.post(END, self._handle),
        ])  # fmt: skip
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        self._connections = Connections(cast(web.Server, self._runner.server))
        site = web.TCPSite(self._runner, host, int(port), ssl_context=self._tls)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            why = error.strerror or type(error).__name__
            raise TransportError.of("the coordinator", needs=f"to listen on {address}", got=why,
                                    hint="Name a free port of this machine") from None  # fmt: skip
        return int(self._runner.addresses[0][1])

    async def _stop(self) -> None:
        self._sessions.close_all()
        await self._runner.cleanup()
        await self._connections.abort()

    def _key(self, member: str) -> bytes | None:
        """Return the key of a site, in good standing or not: what to tell it is decided once it has shown who it is."""
        book = self._credentials.book
        known = [(one.name, one.role, one.verifying) for one in book.members]
        known += [(one.name, one.role, one.verifying) for one in book.revoked]
        return next((key for name, role, key in known if (name, role) == (member, "site")), None)

    def _require_standing(self, member: str, http: web.Request) -> None:
        """Check that a site's certificate counts today, and that the one it shows, if any comes through, is that one.

        Raises:
            TransportError: With every reason why not.
        """
        book, now = self._credentials.book, datetime.now(UTC)
        entry = book.by_name.get(member)
        if entry is None:
            gone = next(one for one in book.revoked if one.name == member)
            raise TransportError.of(f"site {member}", needs="to be a member in good standing",
                                    got=f"one revoked on {gone.when:%Y-%m-%d}: {gone.reason}",
                                    hint="To come back it needs fresh keys")  # fmt: skip
        book.authenticate(entry.der, now, _ROLES)
        tls = http.get_extra_info("ssl_object")
        shown = tls.getpeercert(True) if tls is not None else None
        if shown is not None and book.authenticate(shown, now, _ROLES) != entry:
            raise TransportError.of("the other end", needs=f"the certificate of {member}, or none", got="another member's",
                                    hint="Use keys and certificate of one folder")  # fmt: skip

    async def _handle(self, http: web.Request) -> web.Response:
        try:
            body = await http.read()
        except OSError:
            raise web.HTTPBadRequest from None  # its sender is gone
        request, signature = _request(http, body, self._credentials.identity.signing.public)
        try:
            status, answer = HTTPStatus.OK, await self._answer(http, request, signature)
        except ConsiliaError as error:
            level = logging.INFO if isinstance(error, _EndedError) else logging.WARNING
            _log.log(level, "refused a request of %s: %s", http.remote, error)
            status = HTTPStatus.FORBIDDEN if isinstance(error, TransportError) else HTTPStatus.BAD_REQUEST
            told: list[Json] = [[one.who, one.needs, one.got, one.hint] for one in error.problems]
            answer = canonical_bytes(told)
        signed = request.answer(status, answer, self._credentials.identity.signing)
        headers = {SIGNATURE: signed.hex(), "Cache-Control": "no-store"}
        return web.Response(status=status, body=answer, headers=headers, content_type="application/octet-stream")

    async def _answer(self, http: web.Request, request: Request, signature: bytes) -> bytes:
        now = self._clock()
        self._sessions.expire(now - _IDLE)
        if http.path == OPEN:
            member = _member(request.body)
            session = self._sessions.open(member, request, signature, now)
            try:
                self._require_standing(member, http)
            except TransportError:
                self._sessions.close(session)
                raise
            self._lines[session.nonce] = self._attach(session)
            return session.nonce
        session = self._sessions.admit(request, signature, now)
        line = self._lines[session.nonce]
        try:
            self._require_standing(session.member, http)
            if http.path == UP:
                for packet in unpack(request.body, who=f"coordinator, from {session.member}"):
                    line.stream.receive(packet)
            elif http.path == DOWN:
                return await self._packets(line)
        except ConsiliaError:
            self._sessions.close(session)
            raise
        if http.path == END:
            line.over = ""
            self._sessions.close(session)
        return b""

    def _attach(self, session: Session) -> _Line:
        ready = asyncio.Event()

        def end(reason: str) -> None:
            if session.nonce in self._lines:
                self._lines[session.nonce].over = reason
                self._sessions.close(session)

        stream = self._hub.attach(
            session.member, lambda: self._soon(ready.set), lambda reason: self._soon(lambda: end(reason))
        )
        return _Line(stream, ready)

    def _soon(self, work: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            self._loop.call_soon_threadsafe(work)

    def _closed(self, session: Session) -> None:
        line = self._lines.pop(session.nonce, None)
        if line is not None:
            line.over = "it has ended" if line.over is None else line.over
            line.ready.set()
            line.stream.end()

    async def _packets(self, line: _Line) -> bytes:
        """Wait until there is something to send, and return it; nothing, if nothing comes up in time."""
        if line.waiting:
            raise ProtocolError.of("the coordinator", needs="one request for packets at a time", got="a second one",
                                   hint="Wait for the answer to the first")  # fmt: skip
        line.waiting = True
        try:
            found, size, end = list[bytes](), 0, self._loop.time() + self._wait
            while not found and line.over is None:
                line.ready.clear()
                while size < ENOUGH and (packet := line.stream.next()) is not None:
                    found.append(packet)
                    size += cost(packet)
                if not found and not await _within(line.ready, end - self._loop.time()):
                    break
            if line.over:
                raise _EndedError.of("the coordinator", needs="a session that is open", got=line.over,
                                     hint="It is tried again")  # fmt: skip
            return pack(found)
        finally:
            line.waiting = False


async def _within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


def _request(http: web.Request, body: bytes, coordinator: bytes) -> tuple[Request, bytes]:
    """Read what is signed from a request of HTTP; what has no place for a signature gets no signed answer either."""
    try:
        session, signature = (bytes.fromhex(http.headers[name]) for name in (SESSION, SIGNATURE))
        number = int(http.headers[NUMBER])
    except (KeyError, ValueError):
        raise web.HTTPBadRequest(text="This is the coordinator of a Consilia federation.") from None
    return Request(cast(Method, http.method), http.path_qs, session, number, body, coordinator), signature


def _member(body: bytes) -> str:
    try:
        member = json.loads(body)["site"]
    except (ValueError, KeyError, TypeError, RecursionError):
        member = None
    if not isinstance(member, str):
        raise ProtocolError.of("the coordinator", needs="the name of a site", got="another request",
                               hint="Both ends must run compatible versions")  # fmt: skip
    return member
