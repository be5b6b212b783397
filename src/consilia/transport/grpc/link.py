"""A site's stream to the coordinator."""

import asyncio
import logging
from typing import Any, Final

import grpc
from grpc import aio

from consilia.core.errors import StoreError, TransportError
from consilia.transport.credentials.credentials import Credentials
from consilia.transport.grpc.channel import ACCEPTED, EXCHANGE, SERVICE, client_options, ended, same
from consilia.transport.grpc.probe import refusal

_log = logging.getLogger("consilia.courier")
_PATIENCE: Final = 20.0  # seconds to connect


class GrpcLink:
    """Dials the coordinator.

    Args:
        address: host:port.
        credentials: The site's own; its folder is looked at again at each attempt, so a renewed certificate or a newer roster
            counts from then on.
    """

    def __init__(self, address: str, credentials: Credentials) -> None:
        self.where = address
        self._credentials = credentials

    async def connect(self) -> "GrpcStream":
        """Open a stream.

        Raises:
            TransportError: If the coordinator cannot be reached, or is not the roster's.
        """
        own = self._refreshed()
        secure = grpc.ssl_channel_credentials(own.trusted, own.tls_key, own.chain)
        channel = aio.secure_channel(self.where, secure, options=client_options(own.book.coordinator.dns))
        try:
            async with asyncio.timeout(_PATIENCE):
                await _ready(channel)
                return GrpcStream(self.where, channel, await self._opened(channel))
        except (TimeoutError, ConnectionError):
            await channel.close()
            raise await self._refusal(grpc.StatusCode.UNAVAILABLE, "") from None
        except BaseException:
            await channel.close()
            raise

    async def _opened(self, channel: aio.Channel) -> Any:
        """Return a stream that the coordinator has agreed to.

        Nothing is written before: the library forgets why a stream was refused when a write fails first.
        """
        open_stream = channel.stream_stream(
            f"/{SERVICE}/{EXCHANGE}", request_serializer=same, response_deserializer=same
        )
        call = open_stream()
        if ACCEPTED not in tuple(await call.initial_metadata() or ()):
            raise await self._refusal(await call.code(), await call.details() or "")
        return call

    def _refreshed(self) -> Credentials:
        try:
            self._credentials = self._credentials.refreshed()
        except StoreError as error:
            _log.warning("the roster in the folder is not taken: %s", error)
        return self._credentials

    async def _refusal(self, code: Any, text: str) -> TransportError:
        """Return why a stream could not be opened."""
        return await asyncio.to_thread(refusal, self.where, self._credentials, code, text)


async def _ready(channel: aio.Channel) -> None:
    state = channel.get_state(try_to_connect=True)
    while state is not grpc.ChannelConnectivity.READY:
        if state in (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN):
            raise ConnectionError
        await channel.wait_for_state_change(state)
        state = channel.get_state(try_to_connect=True)


class GrpcStream:
    """One stream of a channel of its own."""

    def __init__(self, where: str, channel: aio.Channel, call: Any) -> None:
        self._where = where
        self._channel = channel
        self._call = call

    async def send(self, packet: bytes) -> None:
        """Send a packet.

        Raises:
            TransportError: If the stream has ended.
        """
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
