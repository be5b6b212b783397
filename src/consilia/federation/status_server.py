"""Status and metrics over HTTP, to read and nothing else."""

import json
import logging
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from consilia.core.canonical import Json
from consilia.core.errors import TransportError

_log = logging.getLogger("consilia.status")
_KEEP_OUT = {
    "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'",
}  # fmt: skip


class StatusServer:
    """Serves /status (JSON), /metrics (Prometheus) and /health.

    Args:
        address: host:port; it has no password, so it should be a loopback address or behind one that asks for it.
        status: What /status says.
        registry: What /metrics says.

    Raises:
        TransportError: If it cannot listen there.
    """

    def __init__(self, address: str, status: Callable[[], Mapping[str, Json]], registry: CollectorRegistry) -> None:
        host, _, port = address.rpartition(":")
        try:
            self._server = ThreadingHTTPServer((host.strip("[]"), int(port)), _handler(status, registry))
        except (OSError, OverflowError) as error:
            raise TransportError.of(f"config key status = {address!r}", needs="an address it can listen on",
                                    got=getattr(error, "strerror", None) or str(error),
                                    hint="Another process may use the port: choose another") from None  # fmt: skip
        self._server.daemon_threads = True
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


def _handler(status: Callable[[], Mapping[str, Json]], registry: CollectorRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "Consilia", ""
        timeout = 10

        def do_GET(self) -> None:
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
