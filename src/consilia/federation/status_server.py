"""Status and metrics over HTTP, to read and nothing else."""

import ipaddress
import json
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from consilia.core.canonical import Json
from consilia.core.errors import TransportError

_log = logging.getLogger("consilia.status")
_KEEP_OUT = {
    "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'",
}  # fmt: skip
_EVERYWHERE = ("", "0.0.0.0", "::")  # any address of this machine is the configured one then  # noqa: S104
_MOST = 16  # requests at a time; whoever opens more connections finds them closed
_PATIENCE = 10  # seconds between two pieces of a request, and for its answer to be read


class StatusServer:
    """Serves /status (JSON), /metrics (Prometheus) and /health.

    Args:
        address: host:port; it has no password, so it should be a loopback address or behind one that asks for it.
        status: What /status says.
        registry: What /metrics says.

    Raises:
        TransportError: If it cannot listen there.

    Guarantees:
        Answers only where the Host header names loopback or the configured host: a web page whose own name was made to point here
        reads nothing through its visitor's browser (DNS rebinding). At most 16 connections are held at a time.
    """

    def __init__(self, address: str, status: Callable[[], Mapping[str, Json]], registry: CollectorRegistry) -> None:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        try:
            self._server = _Server((host, int(port)), _handler(host, status, registry))
        except (OSError, OverflowError) as error:
            raise TransportError.of(f"config key status = {address!r}", needs="an address it can listen on",
                                    got=getattr(error, "strerror", None) or str(error),
                                    hint="Another process may use the port: choose another") from None  # fmt: skip
        self._thread = threading.Thread(target=self._server.serve_forever, name="status", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """A thread for each connection, and not more of them than a coordinator can spare."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._free = threading.BoundedSemaphore(_MOST)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()


def _is_ours(header: str | None, configured: str) -> bool:
    """Say whether a Host header names this server, and not a name that somebody else made point here."""
    if header is None:  # no browser leaves it out
        return True
    host = header.strip().lower()
    host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if host in ("localhost", configured.lower()):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or configured in _EVERYWHERE


def _handler(
    configured: str, status: Callable[[], Mapping[str, Json]], registry: CollectorRegistry
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "Consilia", ""
        timeout = _PATIENCE

        def do_GET(self) -> None:
            if not _is_ours(self.headers.get("Host"), configured):
                self._say(421, "text/plain", b"this name is not the coordinator's: use its address\n")
                return
            try:
                match self.path.split("?")[0]:
                    case "/status":
                        self._say(200, "application/json", json.dumps(status()).encode())
                    case "/metrics":
                        self._say(200, CONTENT_TYPE_LATEST, generate_latest(registry))
                    case "/health":
                        self._say(200, "text/plain", b"ok\n")
                    case _:
                        self._say(404, "text/plain", b"/status, /metrics, /health\n")
            except Exception as error:
                _log.error("status cannot be told", exc_info=error)
                self._say(500, "text/plain", b"the coordinator's log says why\n")

        def _say(self, code: int, kind: str, body: bytes) -> None:
            self.send_response(code)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **_KEEP_OUT}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            _log.debug(format, *arguments)

    return Handler
