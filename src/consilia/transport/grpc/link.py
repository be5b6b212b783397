"""A site's stream to the coordinator."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
from grpc import aio

from consilia.core.errors import TransportError
from consilia.transport.credentials.credentials import Credentials
from consilia.transport.credentials.newest import Newest
from consilia.transport.grpc.channel import ACCEPTED, EXCHANGE, SERVICE, client_options, ended, same
from consilia.transport.grpc.probe import refusal

_PATIENCE: Final = 20.0  # seconds to connect


class GrpcLink:
    """Dials the coordinator.

    Args:
        address: host:port.
        credentials: The site's own; a renewed certificate or a newer roster in their folder counts without a restart.
    """

    def __init__(self, address: str, credentials: Credentials) -> None:
        self.where = address
        self._newest = Newest(credentials)

    async def connect(self) -> "GrpcStream":
        """Open a stream.

        Raises:
            TransportError: If the coordinator cannot be reached, or is not the roster's.
        """
        own = await self._newest.read()
        secure = grpc.ssl_channel_credentials(own.trusted, own.tls_key, own.chain)
        channel = aio.secure_channel(self.where, secure, options=client_options(own.book.coordinator.dns))
        try:
            async with asyncio.timeout(_PATIENCE):
                await _ready(channel)
                call = await self._opened(channel, own)
                return GrpcStream(self.where, channel, call, lambda: self._newest.require_same(own))
        except (TimeoutError, ConnectionError):
            await channel.close()
            raise await self._refusal(own, grpc.StatusCode.UNAVAILABLE, "") from None
        except BaseException:
            await channel.close()
            raise

    async def _opened(self, channel: aio.Channel, own: Credentials) -> Any:
        """Return a stream that the coordinator has agreed to.

        Nothing is written before: the library forgets why a stream was refused when a write fails first.
        """
        open_stream = channel.stream_stream(
            f"/{SERVICE}/{EXCHANGE}", request_serializer=same, response_deserializer=same
        )
        call = open_stream()
        if ACCEPTED not in tuple(await call.initial_metadata() or ()):
            raise await self._refusal(own, await call.code(), await call.details() or "")
        return call

    async def _refusal(self, own: Credentials, code: Any, text: str) -> TransportError:
        """Return why a stream could not be opened."""
        return await asyncio.to_thread(refusal, self.where, own, code, text)


async def _ready(channel: aio.Channel) -> None:
    state = channel.get_state(try_to_connect=True)
    while state is not grpc.ChannelConnectivity.READY:
        if state in (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN):
            raise ConnectionError
        await channel.wait_for_state_change(state)
        state = channel.get_state(try_to_connect=True)


class GrpcStream:
    """One stream of a channel of its own.

    Args:
        where: The coordinator's address.
        channel: The channel, which ends with the stream.
        call: The call.
        check: Raises where the certificates that it began with no longer count.
    """

    def __init__(self, where: str, channel: aio.Channel, call: Any, check: Callable[[], Awaitable[None]]) -> None:
        self._where = where
        self._channel = channel
        self._call = call
        self._check = check

    async def send(self, packet: bytes) -> None:
        """Send a packet.

        Raises:
            TransportError: If the stream has ended, or is to be begun anew by a newer roster.
        """
        await self._check()
        try:
            await self._call.write(packet)
        except (aio.AioRpcError, asyncio.InvalidStateError):
            raise await self._ended() from None

    async def receive(self) -> bytes:
        """Wait for a packet.

        Raises:
            TransportError: If the stream has ended.
        """
        try:
            packet = await self._call.read()
        except aio.AioRpcError:
            raise await self._ended() from None
        if packet is aio.EOF:
            raise await self._ended()
        return bytes(packet)

    async def close(self) -> None:
        """End the stream."""
        self._call.cancel()
        await self._channel.close()

    async def _ended(self) -> TransportError:
        code, text = await self._call.code(), await self._call.details()
        said = code is grpc.StatusCode.FAILED_PRECONDITION and text
        return ended(self._where, text.removesuffix(".") if said else "a connection that broke off")
