"""Why a connection failed: gRPC only says that it did, so the same handshake is tried once more and listened to.

In TLS 1.3 a server refuses a client's certificate after the client's side of the handshake is done: the reason comes as an
alert at the first read.
"""

import contextlib
import re
import socket
import ssl
import tempfile
from typing import Any, Final

import grpc

from consilia.core.errors import TransportError
from consilia.transport.credentials.credentials import Credentials

_PATIENCE: Final = 5.0  # seconds for the probe's connection and each of its reads
_SOON: Final = 1.0  # seconds in which a refusal comes after the handshake
# What the coordinator's TLS library says about our certificate, by its name of the alert: (got, hint).
_ALERTS = {
    "CERTIFICATE_REQUIRED": ("none from this end", "Start it with the folder that consilia roster add made"),
    "CERTIFICATE_EXPIRED": ("this end's, which has expired or is not yet valid by the coordinator's clock",
                            "Check the clocks of both machines, then: consilia roster renew"),
    "UNSUPPORTED_CERTIFICATE": ("this end's, which is for another purpose", "Give each process the folder of its own role"),
    "UNKNOWN_CA": ("this end's, which another authority issued", "Check that both ends belong to the same consortium"),
    "CERTIFICATE_REVOKED": ("this end's, which was revoked", "Ask the consortium's officer"),
    "BAD_CERTIFICATE": ("this end's, which is damaged", "Ask the consortium's officer for the roster again"),
    "CERTIFICATE_UNKNOWN": ("this end's, which it cannot accept", "Check the clocks of both machines, and both rosters"),
}  # fmt: skip
# What our own TLS library says about the coordinator's certificate, by its code of the verification: (got, hint).
_VERIFY = {
    9: ("one that is not yet valid", "Check the clocks of both machines"),
    10: ("an expired one", "At the coordinator: consilia roster renew"),
    18: ("one of another authority", "Check the address, and that both ends belong to the same consortium"),
    19: ("one of another authority", "Check the address, and that both ends belong to the same consortium"),
    20: ("one of another authority", "Check the address, and that both ends belong to the same consortium"),
    26: ("one for another purpose", "The coordinator must be started with the coordinator's folder"),
    62: ("one of another name", "Check the address; the coordinator must be started with the coordinator's folder"),
}


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
                                 got=f"a refusal: {text}"[:-1] if text.endswith(".") else f"a refusal: {text}", hint="")  # fmt: skip
    return diagnosed(address, credentials) or TransportError.of(
        f"{credentials.role} {credentials.name}", needs=f"a coordinator at {address}",
        got=f"a connection that broke off ({code.name.lower()})", hint="It may be restarting; or a proxy on the way breaks "
        "connections off, and the HTTPS fallback is needed")  # fmt: skip


def diagnosed(address: str, credentials: Credentials) -> TransportError | None:
    """Return what is wrong with a connection to the coordinator; None if nothing is found."""
    host, _, port = address.rpartition(":")
    who = f"{credentials.role} {credentials.name}"
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE) as plain,
            _context(credentials).wrap_socket(plain, server_hostname=credentials.book.coordinator.dns) as secure,
        ):
            secure.settimeout(_SOON)
            with contextlib.suppress(TimeoutError):
                secure.recv(1)
            return None
    except ssl.SSLCertVerificationError as error:
        got, hint = _VERIFY.get(
            error.verify_code, (f"one that does not hold ({error.verify_message})", "Check the address")
        )
        return TransportError.of(who, needs=f"the certificate of {credentials.book.coordinator.name} at {address}",
                                 got=got, hint=hint)  # fmt: skip
    except ssl.SSLError as error:
        alert = re.sub(r"^(TLSV1|TLSV13|SSLV3)_ALERT_", "", error.reason or "")
        got, hint = _ALERTS.get(
            alert, (f"something else ({error.reason or error.strerror})", "Check the address: is it the coordinator's?")
        )
        needs = f"a certificate that the coordinator at {address} accepts" if alert in _ALERTS else f"TLS at {address}"
        return TransportError.of(who, needs=needs, got=got, hint=hint)
    except socket.gaierror:
        return TransportError.of(who, needs=f"a coordinator at {address}", got="a name that no machine has",
                                 hint="Check the address, and this machine's name service")  # fmt: skip
    except OSError as error:
        return TransportError.of(who, needs=f"a coordinator at {address}", got=(error.strerror or "no answer").lower(),
                                 hint="Is it running, and does the firewall let this machine out to it?")  # fmt: skip


def _context(credentials: Credentials) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=credentials.ca.decode())
    # The library takes keys from files only; this one can be read by its owner alone and is gone at once.
    with tempfile.NamedTemporaryFile() as file:
        file.write(credentials.chain + credentials.tls_key)
        file.flush()
        context.load_cert_chain(file.name)
    return context
