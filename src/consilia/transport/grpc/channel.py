"""What both ends of a gRPC connection agree on."""

from typing import Final

from consilia.core.errors import TransportError
from consilia.transport.link.packets import MAX_PACKET

SERVICE: Final = "consilia.Coordinator"
EXCHANGE: Final = "Exchange"
CONTROL: Final = "Control"
ACCEPTED: Final = ("consilia-stream", "open")  # the first thing a site hears: it says nothing before
MAX_CONTROL: Final = 1 << 20  # bytes of an operator's request or its answer
_MAX_DETAILS = 1000

# No pings of HTTP/2: the ends send heartbeats of their own, which also keep a connection open that passes through a proxy.
# Pings beside them are what servers answer with "too many pings".
_BOTH = (
    ("grpc.max_receive_message_length", MAX_PACKET + 1024),
    ("grpc.max_send_message_length", MAX_PACKET + 1024),
    ("grpc.enable_retries", 0),  # a stream is never opened again behind the courier's back
)
SERVER_OPTIONS: Final = (*_BOTH, ("grpc.so_reuseport", 0))  # a second coordinator on the same port fails at once


def client_options(name: str) -> tuple[tuple[str, str | int], ...]:
    """Return the options of a channel.

    Args:
        name: The DNS name in the coordinator's certificate, which need not be the host that is dialled.
    """
    return (*_BOTH, ("grpc.ssl_target_name_override", name), ("grpc.use_local_subchannel_pool", 1))


def same(raw: bytes) -> bytes:
    """Return a message's bytes as they are."""
    return raw


def details(text: str) -> str:
    """Return a refusal's text as a status can carry it."""
    return text if len(text) <= _MAX_DETAILS else text[: _MAX_DETAILS - 3] + "..."


def ended(where: str, got: str, hint: str = "It is tried again") -> TransportError:
    """Return the error about a stream that has ended."""
    return TransportError.of(f"the stream to {where}", needs="to stay open", got=got, hint=hint)
