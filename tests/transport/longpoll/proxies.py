"""Proxies as hospitals have them: one that only passes tunnels on, and one that opens what passes and closes it again."""

import base64
import contextlib
import ipaddress
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class _Handler(socketserver.BaseRequestHandler):
    server: "ConnectProxy"

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            head = self._head()
            first = head.split(b"\r\n", 1)[0].split(b" ")
            if self.server.login and self._password(head) != self.server.login:
                return self._say(407, b"Proxy Authentication Required")
            if self.server.refuses or first[0] != b"CONNECT":
                return self._say(403, b"Forbidden")
            host, _, port = first[1].rpartition(b":")
            self.server.tunnels.append(first[1].decode())
            with socket.create_connection((host.decode(), int(port)), 5) as target:
                self.request.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                self.server.through(self.request, target)

    def _head(self) -> bytes:
        head = b""
        while b"\r\n\r\n" not in head and (piece := self.request.recv(4096)):
            head += piece
        return head

    def _password(self, head: bytes) -> str:
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"proxy-authorization: basic "):
                return base64.b64decode(line[27:]).decode()
        return ""

    def _say(self, status: int, reason: bytes) -> None:
        page = b"<html>ask your administrator</html>"
        self.request.sendall(b"HTTP/1.1 %d %s\r\nContent-Length: %d\r\n\r\n%s" % (status, reason, len(page), page))


class ConnectProxy(socketserver.ThreadingTCPServer):
    """Passes tunnels on.

    Attributes:
        login: "user:password" that it asks for; empty: none.
        refuses: Answers 403.
        tunnels: Where it was asked to go.
    """

    allow_reuse_address = True
    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.login, self.refuses = "", False
        self.tunnels: list[str] = []
        self.open: list[Any] = []

    @property
    def url(self) -> str:
        who = f"{self.login}@" if self.login else ""
        return f"http://{who}127.0.0.1:{self.server_address[1]}"

    def through(self, client: socket.socket, target: socket.socket) -> None:
        self.open += [client, target]
        back = threading.Thread(target=_copy, args=(target, client))
        back.start()
        _copy(client, target)
        back.join()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), name="proxy")
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.shutdown()
        self._thread.join()
        for one in self.open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: connections break off at the end of a test."""


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(1 << 16):
            target.sendall(piece)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@dataclass
class Message:
    """A request or an answer of HTTP."""

    first: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes

    @classmethod
    def read(cls, file: Any) -> "Message | None":
        first = file.readline().rstrip(b"\r\n")
        if not first:
            return None
        headers = []
        while line := file.readline().rstrip(b"\r\n"):
            name, _, value = line.partition(b": ")
            headers.append((name, value))
        length = next((int(value) for name, value in headers if name.lower() == b"content-length"), 0)
        return cls(first, headers, file.read(length))

    def __getitem__(self, name: bytes) -> bytes:
        return next((value for known, value in self.headers if known.lower() == name.lower()), b"")

    def to_bytes(self) -> bytes:
        kept = [(name, value) for name, value in self.headers if name.lower() != b"content-length"]
        lines = [name + b": " + value for name, value in [*kept, (b"Content-Length", b"%d" % len(self.body))]]
        return b"\r\n".join([self.first, *lines, b"", b""]) + self.body


@dataclass
class Hand:
    """What an inspecting proxy does to what it sees."""

    request: Callable[[Message], Message] = lambda message: message
    answer: Callable[[Message, Message], Message] = lambda request, message: message
    seen: list[Message] = field(default_factory=list)


class _Noted(ssl.SSLSocket):
    """Noted from its making: Python leaves one open whose other end is reset before the handshake."""

    made: ClassVar[list[ssl.SSLSocket]] = []

    def __new__(cls, *args: Any, **named: Any) -> Self:
        one = super().__new__(cls, *args, **named)
        cls.made.append(one)
        return one


class InspectingProxy(ConnectProxy):
    """Ends TLS with a certificate of its own authority and begins it anew, without the client's certificate."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.hand = Hand()
        self.trust, chain = folder / "proxy-ca.pem", folder / "proxy-chain.pem"
        authority = _certificate("Proxy CA", None)
        key = _certificate("127.0.0.1", authority)
        self.trust.write_bytes(authority[0].public_bytes(serialization.Encoding.PEM))
        plain = serialization.NoEncryption()
        private = key[1].private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        chain.write_bytes(key[0].public_bytes(serialization.Encoding.PEM) + private)
        self._outer = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._outer.load_cert_chain(chain)
        self._inner = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._outer.sslsocket_class = self._inner.sslsocket_class = _Noted
        self._inner.check_hostname, self._inner.verify_mode = False, ssl.CERT_NONE

    def __exit__(self, *why: Any) -> None:
        super().__exit__(*why)
        while _Noted.made:
            _Noted.made.pop().close()

    def through(self, client: socket.socket, target: socket.socket) -> None:
        with self._outer.wrap_socket(client, server_side=True) as one, self._inner.wrap_socket(target) as two:
            self.open += [one, two]
            with one.makefile("rb") as requests, two.makefile("rb") as answers:
                while (request := Message.read(requests)) is not None:
                    self.hand.seen.append(request)
                    two.sendall(self.hand.request(request).to_bytes())
                    answer = Message.read(answers)
                    if answer is None:
                        return
                    one.sendall(self.hand.answer(request, answer).to_bytes())

    def again(self, request: Message, port: int) -> Message:
        """Send a recorded request to the coordinator over a fresh connection."""
        with socket.create_connection(("127.0.0.1", port), 5) as raw, self._inner.wrap_socket(raw) as tls:
            tls.sendall(request.to_bytes())
            with tls.makefile("rb") as answers:
                answer = Message.read(answers)
        assert answer is not None
        return answer


_Pair = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def _certificate(name: str, issuer: _Pair | None) -> _Pair:
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer[0].subject if issuer else subject)
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    if issuer is not None:
        address = x509.IPAddress(ipaddress.ip_address(name))
        builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
    return builder.sign(issuer[1] if issuer else key, hashes.SHA256()), key
