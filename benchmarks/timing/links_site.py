"""A site of the transport benchmark, in a process of its own: the same bytes over a bare TLS socket and over a courier.

python -m benchmarks.timing.links_site FOLDER NAME PORT BARE_PORT HOME durable|forgetful
"""

import socket
import ssl
import struct
import sys
import threading
import time
from functools import cache
from pathlib import Path

from consilia.core.update import Bytes
from consilia.store.ledger_store import SiteStore
from consilia.transport.credentials.credentials import Credentials
from consilia.transport.grpc.link import GrpcLink
from consilia.transport.link.courier import Courier

SIZES = struct.Struct(">QQ")  # of this message, and of the answer that it asks for


class Forgetful:
    """An inbox that remembers nothing: transport alone, without what the site's disk takes."""

    def seen(self, id: bytes, digest: bytes) -> bytes | None:
        """Return None."""

    def begin(self, id: bytes, digest: bytes) -> None:
        """Do nothing."""

    def keep(self, id: bytes, answer: bytes) -> None:
        """Do nothing."""


@cache
def content(size: int) -> bytes:
    """Return an answer."""
    return bytes(range(256)) * (size // 256) + bytes(size % 256)


def handle(frame: Bytes) -> bytes:
    """Answer as the frame asks."""
    return content(SIZES.unpack_from(frame)[1])


def context(side: int, own: Credentials, folder: Path) -> ssl.SSLContext:
    """Return what a bare socket needs for mutual TLS."""
    made = ssl.SSLContext(side)
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_verify_locations(cadata=own.ca.decode())
    place = folder / "bare.pem"
    place.write_bytes(own.chain + own.tls_key)
    made.load_cert_chain(place)
    return made


def receive(line: ssl.SSLSocket, buffer: memoryview) -> None:
    """Fill the buffer."""
    place = 0
    while place < len(buffer):
        count = line.recv_into(buffer[place:])
        if not count:
            raise EOFError
        place += count


def bare(line: ssl.SSLSocket) -> None:
    """Answer over a bare socket until it is closed."""
    buffer = bytearray(1 << 27)
    head = memoryview(buffer)[: SIZES.size]
    while True:
        receive(line, head)
        size, answer = SIZES.unpack_from(head)
        receive(line, memoryview(buffer)[SIZES.size : size])
        line.sendall(content(answer))


def main() -> None:
    """Serve until the coordinator closes the bare socket."""
    folder, name, port, bare_port, home = Path(sys.argv[1]), *sys.argv[2:5], Path(sys.argv[5]) / sys.argv[2]
    home.mkdir(parents=True)
    store = SiteStore.open(home / "site.db", name)
    own = Credentials.load(folder / name)
    stop = threading.Event()
    courier = Courier(
        name, [GrpcLink(f"127.0.0.1:{port}", own)], store.inbox if sys.argv[6] == "durable" else Forgetful(), handle,
        spool=home / "spool", leaves=lambda id, frame: None, retry_cap=1.0, clock=time.monotonic,
    )  # fmt: skip
    thread = threading.Thread(target=courier.run, args=(stop,))
    thread.start()
    plain = socket.create_connection(("127.0.0.1", int(bare_port)))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with context(ssl.PROTOCOL_TLS_CLIENT, own, folder / name).wrap_socket(
        plain, server_hostname=own.book.coordinator.dns
    ) as line:
        try:
            bare(line)
        except (EOFError, OSError):
            stop.set()
    thread.join()
    store.close()


if __name__ == "__main__":
    main()
