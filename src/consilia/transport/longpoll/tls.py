"""TLS for HTTPS: it keeps strangers from reading; who is at the other end is what signatures say."""

import ssl
from pathlib import Path

from consilia.core.errors import PlanError
from consilia.transport.credentials.credentials import Credentials
from consilia.transport.credentials.tls import present


def server_context(credentials: Credentials) -> ssl.SSLContext:
    """Return the coordinator's: its own certificate, and a client's wherever one comes through."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # what proxies of hospitals still speak
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=credentials.ca.decode())
    present(context, credentials)
    return context


def client_context(credentials: Credentials, trust: Path | None) -> ssl.SSLContext:
    """Return a site's.

    Args:
        credentials: The site's.
        trust: Certificates, PEM, of the authority of a proxy that inspects; it is then trusted in the coordinator's place.

    Raises:
        PlanError: If the file holds none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if trust is None:
        context.load_verify_locations(cadata=credentials.trusted.decode())
        # The coordinator's certificate itself is the anchor: no other one of its authority passes.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        present(context, credentials)
        return context
    try:
        context.load_verify_locations(trust)
    except (OSError, ssl.SSLError):
        raise PlanError.of(f"file {trust}", needs="the certificate of the proxy's authority, PEM", got="something else",
                           hint="Ask who runs the proxy for it") from None  # fmt: skip
    return context
