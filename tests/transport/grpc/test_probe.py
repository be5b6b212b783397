"""The handshake that a failed call is explained by."""

import contextlib
import gc
import socket
import ssl
import struct
import threading
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.transport.credentials.world import World

from consilia.transport.grpc.probe import diagnosed


def test_a_connection_that_is_reset_while_it_begins_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrap = ssl.SSLContext.wrap_socket

    def slowly(self: ssl.SSLContext, sock: socket.socket) -> ssl.SSLSocket:
        time.sleep(0.02)  # a machine under load: what was connected before has been reset by now
        return wrap(self, sock)

    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", slowly)
    own = World.made(tmp_path, datetime.now(UTC).replace(microsecond=0)).load("north")
    with socket.create_server(("127.0.0.1", 0)) as server, warnings.catch_warnings(record=True) as left:
        warnings.simplefilter("always", ResourceWarning)
        stop = threading.Event()

        def hang_up() -> None:
            server.settimeout(0.05)
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    line, _ = server.accept()
                    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    line.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        try:
            for _ in range(20):
                assert diagnosed(f"127.0.0.1:{server.getsockname()[1]}", own) is not None
        finally:
            stop.set()
            thread.join()
        gc.collect()
    assert [str(one.message) for one in left if issubclass(one.category, ResourceWarning)] == []
