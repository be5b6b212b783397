"""Status and metrics on loopback: what is served, to whom, and that nobody can use up the coordinator's threads."""

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.parser import text_string_to_metric_families
from tests.federation.processes import until

from consilia.core.canonical import Json
from consilia.core.errors import TransportError
from consilia.federation import status_server
from consilia.federation.status_server import StatusServer

EVERYWHERE = "0.0.0.0"  # noqa: S104  (as an operator may have configured it)
Told = Callable[[], Mapping[str, Json]]


@contextlib.contextmanager
def serving(status: Told = lambda: {"runs": []}, address: str = "127.0.0.1:0") -> Iterator[StatusServer]:
    registry = CollectorRegistry()
    Gauge("consilia_runs", "Runs.", registry=registry).set(3)
    server = StatusServer(address, status, registry)
    try:
        yield server
    finally:
        server.close()


def ask(
    server: StatusServer, path: str, *, host: str | None = None, verb: str = "GET"
) -> tuple[int, Mapping[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request(verb, path, headers={} if host is None else {"Host": host})
        answer = connection.getresponse()
        return answer.status, dict(answer.headers), answer.read()
    finally:
        connection.close()


def test_what_is_served() -> None:
    with serving() as server:
        code, headers, body = ask(server, "/status")
        assert (code, json.loads(body), headers["Content-Type"]) == (200, {"runs": []}, "application/json")
        assert headers["Cache-Control"] == "no-store"
        assert "Python" not in headers["Server"]
        code, headers, body = ask(server, "/metrics?name[]=x")
        assert code == 200
        assert [family.name for family in text_string_to_metric_families(body.decode())] == ["consilia_runs"]
        assert ask(server, "/health")[::2] == (200, b"ok\n")
        assert ask(server, "/")[0] == 404
        assert ask(server, "/../status")[0] == 404


@pytest.mark.parametrize("verb", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
def test_nothing_can_be_changed(verb: str) -> None:
    with serving() as server:
        assert ask(server, "/status", verb=verb)[0] == 501


@pytest.mark.parametrize(
    "host", ["localhost:8441", "LOCALHOST", "127.0.0.1", "127.0.0.1:8441", "[::1]:8441", "127.3.2.1"]
)
def test_loopback_is_answered(host: str) -> None:
    with serving() as server:
        assert ask(server, "/status", host=host)[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example.org",
        "evil.example.org:8441",
        "localhost.evil.example.org",
        "127.0.0.1.evil.example.org",
        "10.0.0.1",
        "[2001:db8::1]",
        "",
        "localhost@evil.example.org",
    ],
)
def test_a_foreign_name_is_refused_whatever_it_asks(host: str) -> None:
    def never() -> Mapping[str, Json]:
        raise AssertionError("asked for the status")

    with serving(never) as server:
        for path in ("/status", "/metrics", "/health", "/"):
            code, _, body = ask(server, path, host=host)
            assert code == 421
            assert b"runs" not in body


@pytest.mark.parametrize(
    ("configured", "host", "ours"),
    [
        ("coordinator.example.org", "coordinator.example.org:8441", True),
        ("coordinator.example.org", "Coordinator.Example.org", True),
        ("coordinator.example.org", "other.example.org", False),
        ("10.0.0.5", "10.0.0.5:8441", True),
        ("10.0.0.5", "10.0.0.6", False),
        (EVERYWHERE, "10.0.0.6:8441", True),
        (EVERYWHERE, "evil.example.org", False),
        ("::", "[2001:db8::1]:8441", True),
        ("::1", "[::1]:8441", True),
    ],
)
def test_the_configured_host_is_answered(configured: str, host: str, ours: bool) -> None:
    assert status_server._is_ours(host, configured) == ours


def test_a_fault_shows_nothing_of_itself(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> Mapping[str, Json]:
        raise RuntimeError("patient 4711")

    with serving(fail) as server:
        code, headers, body = ask(server, "/status")
        assert code == 500
        assert "4711" not in str(headers) + body.decode()
        assert ask(server, "/health")[0] == 200
    assert "status cannot be told" in caplog.text


def threads(server: StatusServer) -> int:
    return sum("process_request_thread" in one.name for one in threading.enumerate())


def test_connections_that_ask_nothing_hold_a_bounded_number_of_threads() -> None:
    with serving() as server, contextlib.ExitStack() as stack:
        idle = []
        for _ in range(3 * status_server._MOST):
            idle.append(stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=10)))
        closed = [one for one in idle[status_server._MOST :] if one.recv(1) == b""]
        assert len(closed) == 2 * status_server._MOST
        assert threads(server) == status_server._MOST
        for one in idle[:2]:  # two go: two places are free again
            one.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            assert one.recv(100).startswith(b"HTTP/1.0 200")
            while one.recv(100):
                pass
        until(lambda: threads(server) < status_server._MOST, what="a free place")
        assert ask(server, "/health")[0] == 200


def test_a_request_that_never_ends_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_server, "_PATIENCE", 0.2)
    with serving() as server, socket.create_connection(("127.0.0.1", server.port), timeout=10) as slow:
        slow.sendall(b"GET /status HT")
        assert slow.recv(1) == b""


def test_a_taken_port_and_an_address_that_is_none() -> None:
    with serving() as server:
        for address, got in ((f"127.0.0.1:{server.port}", "Address already in use"), ("127.0.0.1:99999", "port")):
            with pytest.raises(TransportError, match=got) as caught:
                serving(address=address).__enter__()
            assert f"config key status = '{address}'" in str(caught.value)


def test_loopback_of_ipv6() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        with serving(address="[::1]:0") as server:
            connection = http.client.HTTPConnection("::1", server.port, timeout=10)
            connection.request("GET", "/health")
            assert connection.getresponse().status == 200
            connection.close()
    except TransportError as error:
        pytest.skip(f"no IPv6 here: {error}")
