"""The coordinator's port: authenticates who dials, and hands streams of sites to the hub and requests of operators on."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final

import grpc
from grpc import aio

from consilia.core.errors import ProtocolError, TransportError
from consilia.transport.credentials.book import Entry
from consilia.transport.credentials.credentials import Credentials
from consilia.transport.grpc.channel import ACCEPTED, CONTROL, EXCHANGE, SERVER_OPTIONS, SERVICE, details, same
from consilia.transport.grpc.control import Control, answered
from consilia.transport.link.hub import Hub

_log = logging.getLogger("consilia.hub")
_RECHECK: Final = 60.0  # seconds after which an open stream's certificate is looked at again
_GREETING: Final = 30.0  # seconds in which a stream that was opened is greeted
_ATTEMPTS: Final = 25  # to listen again at a port that was given up a moment ago
_LINGER: Final = 1e7  # seconds that open streams go on where the port is listened at anew: until they end by themselves
_GRACE: Final = 0.2  # seconds for refusals to go out before the port closes


class GrpcServer:
    """Listens, in a thread with an event loop of its own.

    Args:
        hub: Takes the streams of sites.
        credentials: The coordinator's own, with the roster.
        address: host:port to listen at; port 0 takes a free one.
        control: Answers an operator's request, given who it is; called from a worker thread.

    Attributes:
        port: Where it listens.

    Raises:
        TransportError: If it cannot listen there.
    """

    def __init__(self, hub: Hub, credentials: Credentials, address: str, control: Control) -> None:
        self._hub = hub
        self._host = address.rpartition(":")[0]
        self._credentials = credentials
        self._control = control
        self._open: dict[object, tuple[bytes, asyncio.Future[str]]] = {}
        self._listening = False
        self._ending: list[asyncio.Task[None]] = []
        self._loop = asyncio.new_event_loop()
        self._workers = ThreadPoolExecutor(4, thread_name_prefix="control")
        self._thread = threading.Thread(target=self._loop.run_forever, name="grpc", daemon=True)
        self._thread.start()
        try:
            self.port = self._call(self._begin(address))
        except RuntimeError:
            self._end_loop()
            raise self._unheard(address) from None

    def reload(self, credentials: Credentials) -> None:
        """Go on with another roster: streams of members that it no longer knows are ended.

        With a renewed certificate of its own it listens anew; streams that are open go on, for a site that has not got the
        roster yet would not come back.

        Raises:
            TransportError: If another process took the port in between; the roster counts all the same.
        """
        renewed = credentials.chain != self._credentials.chain or not self._listening
        self._credentials = credentials
        try:
            self._call(self._recheck())
            if renewed:
                self._call(self._listen_anew())
        except RuntimeError:
            raise self._unheard(f"port {self.port}") from None

    def close(self) -> None:
        """End all streams and stop listening."""
        self._call(self._stop())
        self._end_loop()

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._workers.shutdown()

    def _unheard(self, where: str) -> TransportError:
        return TransportError.of("the coordinator", needs=f"to listen at {where}", got="an address that is taken or not this "
                                 "machine's", hint="Is another coordinator running?")  # fmt: skip

    async def _begin(self, address: str) -> int:
        port = await self._listen(address)
        self._watch = self._loop.create_task(self._watching())
        return port

    async def _listen(self, address: str) -> int:
        self._server = aio.server(options=SERVER_OPTIONS)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {
            EXCHANGE: grpc.stream_stream_rpc_method_handler(self._exchange, same, same),
            CONTROL: grpc.unary_unary_rpc_method_handler(self._answer, same, same),
        }),))  # fmt: skip
        # Fixed for this listener: credentials that gRPC asks for at each handshake can crash the
        # process (seen with grpcio 1.85) when strangers send bytes that are no handshake.
        own = self._credentials
        secure = grpc.ssl_server_credentials([(own.tls_key, own.chain)], own.ca, require_client_auth=True)
        port = self._server.add_secure_port(address, secure)
        await self._server.start()
        self._listening = True
        return int(port)

    async def _listen_anew(self) -> None:
        if self._listening:
            self._listening = False
            self._ending.append(self._loop.create_task(self._server.stop(_LINGER)))
        for left in reversed(range(_ATTEMPTS)):
            try:
                await self._listen(f"{self._host}:{self.port}")
                return
            except RuntimeError:  # the port is not free yet
                if not left:
                    raise
                await asyncio.sleep(_GRACE)

    async def _stop(self) -> None:
        self._watch.cancel()
        for _, closing in list(self._open.values()):
            _settle(closing, "the coordinator is stopping")
        await self._server.stop(_GRACE)
        for task in self._ending:  # their streams are settled
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(task, _GRACE)
        with contextlib.suppress(asyncio.CancelledError):
            await self._watch

    async def _watching(self) -> None:
        while True:
            await asyncio.sleep(_RECHECK)
            await self._recheck()

    async def _recheck(self) -> None:
        for certificate, closing in list(self._open.values()):
            try:
                self._credentials.book.authenticate(certificate, datetime.now(UTC))
            except TransportError as error:
                _settle(closing, str(error))

    async def _member(self, context: Any, role: str) -> tuple[Entry, bytes]:
        """Return who dialled; ends the call unless it is a member of this role."""
        shown = context.auth_context().get("x509_pem_cert", [b""])[0]
        try:
            entry = self._credentials.book.authenticate(shown, datetime.now(UTC))
        except TransportError as error:
            _log.warning("%s: refused: %s", context.peer(), error)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, details(str(error)))
        if entry.role != role:
            wrong = TransportError.of(f"{entry.role} {entry.name}", needs=f"the role {role} for this", got=entry.role,
                                      hint="Give each process the folder of its own role")  # fmt: skip
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, details(str(wrong)))
        return entry, shown

    async def _answer(self, request: bytes, context: Any) -> bytes:
        entry, _ = await self._member(context, "operator")
        return await self._loop.run_in_executor(self._workers, answered, self._control, entry, request)

    async def _exchange(self, _: object, context: Any) -> None:
        entry, shown = await self._member(context, "site")
        wake, closing = asyncio.Event(), self._loop.create_future()
        session = self._hub.attach(
            entry.name, self._from_any_thread(wake.set), self._from_any_thread(lambda why: _settle(closing, why))
        )

        async def read() -> str:
            async with asyncio.timeout(_GREETING):
                packet = await context.read()
            while packet is not aio.EOF:
                session.receive(packet)
                packet = await context.read()
            return ""

        async def write() -> str:
            while True:
                wake.clear()
                while (packet := session.next()) is not None:
                    await context.write(packet)
                await wake.wait()

        # Noted before anything is awaited: a roster that comes now finds the stream.
        self._open[session] = (shown, closing)
        try:
            await context.send_initial_metadata((ACCEPTED,))
            why = await _first(read(), write(), closing)
        except ProtocolError as error:
            _log.warning("the stream of site %s was ended: %s", entry.name, error)
            why = str(error)
        except Exception as error:  # the library's own when a connection breaks; this stream's alone in any case
            _log.warning("the stream of site %s broke: %s", entry.name, type(error).__name__)
            why = "an error at the coordinator"
        finally:
            del self._open[session]
            session.end()
        if why:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, details(why))

    def _from_any_thread(self, call: Callable[..., None]) -> Callable[..., None]:
        def tell(*args: object) -> None:
            if threading.get_ident() == self._thread.ident:
                return call(*args)
            with contextlib.suppress(RuntimeError):  # the loop has ended, and with it the stream
                self._loop.call_soon_threadsafe(call, *args)
            return None

        return tell


def _settle(closing: "asyncio.Future[str]", why: str) -> None:
    if not closing.done():
        closing.set_result(why)


async def _first(*work: Awaitable[str]) -> str:
    """Return what the first to end returns or raises, and end the others."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return next((outcome for outcome in outcomes if isinstance(outcome, str) and outcome), "")
