"""A socket between a store and its server that is cut where a test says: before a statement, or before its answer."""

import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.store.cluster import Cluster

_PIECE = 65536


class Severed:
    """Passes bytes on; cuts the connection that sends `statement`, once, when it was passed on (`after`) or before."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._server = str(cluster.folder / f".s.PGSQL.{cluster.port}")
        self.url = f"?host={folder}&port={cluster.port}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / f".s.PGSQL.{cluster.port}"))
        self._listener.listen()
        self._cut: tuple[bytes, bool] | None = None
        self.cuts = 0
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def cut(self, statement: bytes, *, after: bool) -> None:
        self._cut = (statement, after)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._server)
            self._start(self._forth, client, server)

    def _forth(self, client: socket.socket, server: socket.socket) -> None:
        back = threading.Thread(target=self._back, args=(client, server))
        back.start()
        with server, client:
            while piece := _read(client):
                cut = self._cut
                if cut is None or cut[0] not in piece:
                    server.sendall(piece)
                    continue
                self._cut, self.cuts = None, self.cuts + 1
                client.shutdown(socket.SHUT_RDWR)  # no answer comes back any more
                if cut[1]:
                    server.sendall(piece)
                break
            _end(server)
            back.join()

    def _back(self, client: socket.socket, server: socket.socket) -> None:
        while piece := _read(server):
            try:
                client.sendall(piece)
            except OSError:
                continue  # the client is cut off; the server goes on to the end of what it was told
        _end(client)


def _read(source: socket.socket) -> bytes:
    try:
        return source.recv(_PIECE)
    except OSError:
        return b""


def _end(target: socket.socket) -> None:
    try:
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return


@contextmanager
def severed(cluster: Cluster) -> Iterator[Severed]:
    folder = Path(tempfile.mkdtemp(prefix="consilia-cut-"))
    between = Severed(cluster, folder)
    try:
        yield between
    finally:
        between.close()
        shutil.rmtree(folder)
