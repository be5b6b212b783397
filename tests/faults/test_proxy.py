"""The proxy does to a connection what its settings say, and nothing to one it leaves alone."""

import contextlib
import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest
from tests.faults.proxy import FaultProxy


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while data := self.request.recv(1 << 16):
                self.server.pieces.append(data)  # type: ignore[attr-defined]
                self.request.sendall(data)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Echo)
        self.pieces: list[bytes] = []


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as echo:
        thread = threading.Thread(target=echo.serve_forever, args=(0.02,))
        thread.start()
        yield echo
        echo.shutdown()
        thread.join()


@pytest.fixture
def proxy(server: Server) -> Iterator[FaultProxy]:
    with FaultProxy(server.server_address[1]) as one:
        yield one


def call(proxy: FaultProxy, timeout: float = 5.0) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout)


def read(one: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size and (piece := one.recv(size - len(got))):
        got += piece
    return got


def until(condition: object, seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.005)


DATA = bytes(range(256)) * 40


def test_left_alone_it_passes_everything(proxy: FaultProxy) -> None:
    with call(proxy) as one, call(proxy) as two:
        one.sendall(DATA)
        two.sendall(DATA[:100])
        assert read(one, len(DATA)) == DATA
        assert read(two, 100) == DATA[:100]
        assert proxy.accepted == proxy.open == 2
        assert proxy.up.passed == proxy.down.passed == len(DATA) + 100
    until(lambda: proxy.open == 0)


def test_latency_and_rate_take_their_time(proxy: FaultProxy) -> None:
    with call(proxy) as one:
        proxy.up.latency, proxy.up.jitter = 0.1, 0.05
        begun = time.monotonic()
        one.sendall(b"x")
        assert read(one, 1) == b"x"
        assert time.monotonic() - begun >= 0.1
        proxy.up.latency = proxy.up.jitter = 0.0
        proxy.down.rate = 50_000
        begun = time.monotonic()
        one.sendall(DATA)
        assert read(one, len(DATA)) == DATA
        assert time.monotonic() - begun >= len(DATA) / 50_000 * 0.9


def test_what_is_swallowed_is_lost_and_the_connection_stays(proxy: FaultProxy) -> None:
    with call(proxy) as one:
        proxy.swallow(0.15)
        one.sendall(b"lost")
        time.sleep(0.2)
        one.sendall(b"found")
        assert read(one, 5) == b"found"


def test_a_host_that_hangs_takes_nothing_until_it_goes_on(proxy: FaultProxy) -> None:
    with call(proxy, timeout=0.1) as one:
        proxy.hang()
        one.sendall(b"later")
        with pytest.raises(TimeoutError):
            one.recv(5)
        proxy.hang(False)
        one.settimeout(5.0)
        assert read(one, 5) == b"later"


def test_what_is_half_open_stays_so_and_new_connections_pass(proxy: FaultProxy) -> None:
    with call(proxy, timeout=0.1) as one:
        one.sendall(b"x")
        assert read(one, 1) == b"x"
        proxy.freeze()
        one.sendall(b"y")
        with pytest.raises(TimeoutError):
            one.recv(1)
        with call(proxy) as two:
            two.sendall(b"z")
            assert read(two, 1) == b"z"


def test_a_reset_reaches_the_caller(proxy: FaultProxy) -> None:
    with call(proxy) as one:
        one.sendall(b"x")
        assert read(one, 1) == b"x"
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            one.recv(1)
    assert proxy.open == 0
    proxy.refuse = True
    with pytest.raises(ConnectionError), call(proxy) as one:
        one.recv(1)


@pytest.mark.parametrize("how", ["close", "reset"])
def test_cut_after_so_many_bytes(proxy: FaultProxy, server: Server, how: str) -> None:
    proxy.up.cut_at, proxy.up.cut_by = 1000, how  # type: ignore[assignment]
    with call(proxy) as one:
        one.sendall(DATA)
        with contextlib.suppress(ConnectionError):
            while one.recv(1 << 16):
                pass
    # Of what was cut by a reset the kernel may lose the end.
    until(lambda: how == "reset" or sum(map(len, server.pieces)) == 1000)
    assert DATA[:1000].startswith(b"".join(server.pieces))
    with call(proxy) as one:  # once only
        one.sendall(DATA)
        assert read(one, len(DATA)) == DATA


def test_sliced_and_flipped(proxy: FaultProxy, server: Server) -> None:
    proxy.up.slices, proxy.down.flip_at = 50, 300
    with call(proxy) as one:
        one.sendall(DATA[:2000])
        got = read(one, 2000)
        assert [at for at in range(2000) if got[at] != DATA[at]] == [300]
        assert len(server.pieces) > 1
        one.sendall(DATA[:2000])
        assert read(one, 2000) == DATA[:2000]


def test_a_slow_close(proxy: FaultProxy) -> None:
    proxy.up.close_after = 0.2
    one = call(proxy)
    one.sendall(b"x")
    assert read(one, 1) == b"x"
    one.close()
    begun = time.monotonic()
    until(lambda: proxy.open == 0)
    assert time.monotonic() - begun >= 0.15


def test_two_connections_for_one(proxy: FaultProxy, server: Server) -> None:
    proxy.twice = True
    with call(proxy) as one:
        one.sendall(b"both")
        assert read(one, 4) == b"both"
        until(lambda: b"".join(server.pieces) == b"bothboth")


def test_nobody_at_the_other_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with FaultProxy(port) as proxy, pytest.raises(ConnectionError), call(proxy) as one:
        one.recv(1)
