"""Why a connection failed: gRPC only says that it did, so the same handshake is tried once more and listened to.

The coordinator's certificate is taken as it comes and held against the roster, which says all that is wrong with it; nothing is
sent over such a connection. A server that refuses a client's certificate just hangs up: gRPC's does not send the alert that its
TLS library has ready. What is wrong is then what the roster says of this end's own certificate.
"""

import contextlib
import socket
import ssl
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import grpc

from consilia.core.errors import Problem, TransportError
from consilia.transport.credentials.credentials import Credentials
from consilia.transport.credentials.names import CLIENTS, SERVERS, Role
from consilia.transport.credentials.reading import shown
from consilia.transport.credentials.tls import present

_PATIENCE: Final = 5.0  # seconds for the probe's connection and each of its reads


def refusal(address: str, credentials: Credentials, code: Any, text: str) -> TransportError:
    """Return why a call failed.

    Args:
        address: host:port.
        credentials: This end's.
        code: gRPC's status.
        text: What came with it.
    """
    if code in (
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.FAILED_PRECONDITION,
    ):
        return TransportError.of(f"{credentials.role} {credentials.name}", needs=f"a place at the coordinator ({address})",
                                 got=f"a refusal: {text.removesuffix('.')}", hint="")  # fmt: skip
    return diagnosed(address, credentials) or TransportError.of(
        f"{credentials.role} {credentials.name}", needs=f"a coordinator at {address}",
        got=f"a connection that broke off ({code.name.lower()})", hint="It may be restarting; or a proxy on the way breaks "
        "connections off, and the HTTPS fallback is needed")  # fmt: skip


def diagnosed(address: str, credentials: Credentials) -> TransportError | None:
    """Return what is wrong with a connection to the coordinator; None if nothing is found."""
    who = f"{credentials.role} {credentials.name}"
    try:
        with _handshake(address, _context(credentials)) as secure:
            wrong = _fault(credentials, secure.getpeercert(binary_form=True), SERVERS, f" at {address}")
            return wrong or (None if _served(secure) else _unserved(address, credentials))
    except ssl.SSLError as error:
        return TransportError.of(who, needs=f"TLS at {address}", got=f"something else ({error.reason or error.strerror})",
                                 hint="Check the address: is it the coordinator's?")  # fmt: skip
    except socket.gaierror:
        return TransportError.of(who, needs=f"a coordinator at {address}", got="a name that no machine has",
                                 hint="Check the address, and this machine's name service")  # fmt: skip
    except OSError as error:
        return TransportError.of(who, needs=f"a coordinator at {address}", got=(error.strerror or "no answer").lower(),
                                 hint="Is it running, and does the firewall let this machine out to it?")  # fmt: skip


def _fault(own: Credentials, certificate: bytes | None, roles: Collection[Role], where: str) -> TransportError | None:
    try:
        own.book.authenticate(certificate, datetime.now(UTC), roles)
    except TransportError as error:
        return TransportError(Problem(one.who + where, one.needs, one.got, one.hint) for one in error.problems)
    return None


def _served(secure: ssl.SSLSocket) -> bool:
    """Return False if the other end hangs up after the handshake, where one that takes the certificate speaks first."""
    try:
        return secure.recv(1) != b""
    except TimeoutError:
        return True
    except OSError:  # also an alert
        return False


def _unserved(address: str, own: Credentials) -> TransportError:
    certificate = own.entry.certificate
    return _fault(own, own.entry.der, CLIENTS, f", which the coordinator at {address} refuses,") or TransportError.of(
        f"{own.role} {own.name}", needs=f"a certificate that the coordinator at {address} takes",
        got=f"a refusal of one from {shown(certificate.not_valid_before_utc)} to {shown(certificate.not_valid_after_utc)}",
        hint="Here nothing is wrong with it: check the clock there, and that both ends are of the same consortium",
    )  # fmt: skip


@contextlib.contextmanager
def _handshake(address: str, context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    host, _, port = address.rpartition(":")
    ways = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    for left, (family, kind, protocol, _, where) in zip(reversed(range(len(ways))), ways, strict=True):
        # Wrapped before it is connected: a connection that is reset in between the library would leave open.
        with context.wrap_socket(socket.socket(family, kind, protocol)) as secure:
            secure.settimeout(_PATIENCE)
            try:
                secure.connect(where)
            except ssl.SSLError:
                raise
            except OSError:
                if left:
                    continue
                raise
            yield secure
            return


def _context(credentials: Credentials) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the roster is asked instead
    context.set_alpn_protocols(["h2"])  # without it gRPC hangs up on everybody
    present(context, credentials)
    return context
