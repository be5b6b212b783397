"""A member's certificate for the standard library's TLS."""

import os
import ssl
import tempfile

from consilia.transport.credentials.credentials import Credentials


def present(context: ssl.SSLContext, credentials: Credentials) -> None:
    """Show a member's certificate in connections that begin from now on.

    The library reads keys from files only: this one is in memory where the system has such files, else in the member's
    folder, for its owner alone, and gone at once.
    """
    content = credentials.chain + credentials.tls_key
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("tls"), "wb") as memory:
            memory.write(content)
            memory.flush()
            context.load_cert_chain(f"/proc/self/fd/{memory.fileno()}")
        return
    with tempfile.NamedTemporaryFile(dir=credentials.folder, prefix=".tls-") as file:
        file.write(content)
        file.flush()
        context.load_cert_chain(file.name)
