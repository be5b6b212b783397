"""Requests of operators: who may ask, and errors that keep their wording and exit code."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.transport.credentials.world import World

from consilia.core.errors import (
    BudgetExceeded,
    ConsiliaError,
    DataError,
    PlanError,
    Problem,
    ProtocolError,
    StoreError,
    TransportError,
)  # fmt: skip
from consilia.transport.credentials.book import Entry
from consilia.transport.credentials.credentials import Credentials
from consilia.transport.grpc.channel import CONTROL, MAX_CONTROL, SERVICE, client_options
from consilia.transport.grpc.control import call
from consilia.transport.grpc.server import GrpcServer
from consilia.transport.link.hub import Hub

KINDS = {kind.__name__: kind for kind in (
    PlanError, DataError, BudgetExceeded, ProtocolError, StoreError, TransportError, ConsiliaError,
)}  # fmt: skip
FAULTS = [Problem("plan key a", "b", "c", "Do d"), Problem("plan key e", "f", "g", "")]


def control(entry: Entry, request: dict[str, Any]) -> dict[str, Any]:
    if "fail" in request:
        raise KINDS[request["fail"]](FAULTS)
    if "break" in request:
        raise RuntimeError("patient 42")
    if "size" in request:
        return {"long": "x" * request["size"]}
    return {"from": entry.name, "asked": request}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World.made(tmp_path_factory.mktemp("world"), datetime.now(UTC))


@pytest.fixture(scope="module")
def address(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    hub = Hub(tmp_path_factory.mktemp("spool"), heartbeat=5.0, upload_floor=1.0, clock=time.monotonic)
    server = GrpcServer(hub, world.load("hub"), "127.0.0.1:0", control)
    yield f"127.0.0.1:{server.port}"
    server.close()
    hub.close()


@pytest.fixture(scope="module")
def olga(world: World) -> Credentials:
    return world.load("olga")


def test_an_operator_is_answered(address: str, olga: Credentials) -> None:
    assert call(address, olga, {"what": ["status", 1, None]}) == {
        "from": "olga", "asked": {"what": ["status", 1, None]},
    }  # fmt: skip


def test_a_site_is_no_operator(address: str, world: World) -> None:
    with pytest.raises(TransportError, match=r"site north needs the role operator for this; got site"):
        call(address, world.load("north"), {})


@pytest.mark.parametrize("kind", KINDS)
def test_errors_cross_with_all_their_faults(address: str, olga: Credentials, kind: str) -> None:
    with pytest.raises(ConsiliaError) as caught:
        call(address, olga, {"fail": kind})
    assert type(caught.value) is KINDS[kind]
    assert caught.value.problems == tuple(FAULTS)
    assert caught.value.exit_code == KINDS[kind].exit_code


def test_an_error_of_the_program_crosses_without_its_text(address: str, olga: Credentials) -> None:
    with pytest.raises(ConsiliaError, match="an error of its own: RuntimeError") as caught:
        call(address, olga, {"break": 1})
    assert "patient" not in str(caught.value)
    assert call(address, olga, {})["from"] == "olga"


def test_long_requests_and_answers_are_refused_with_a_reason(address: str, olga: Credentials) -> None:
    with pytest.raises(ProtocolError, match=f"at most {MAX_CONTROL} bytes"):
        call(address, olga, {"size": MAX_CONTROL})
    with pytest.raises(ProtocolError, match=f"at most {MAX_CONTROL} bytes"):
        call(address, olga, {"plan": "x" * MAX_CONTROL})
    assert len(call(address, olga, {"size": MAX_CONTROL - 100})["long"]) == MAX_CONTROL - 100


@pytest.mark.parametrize("raw", [b"", b"[]", b"\xff", b"{" * 100_000, b'{"a": NaN}'])
def test_bytes_that_are_no_request_are_refused(address: str, olga: Credentials, raw: bytes) -> None:
    secure = grpc.ssl_channel_credentials(olga.trusted, olga.tls_key, olga.chain)
    with grpc.secure_channel(address, secure, options=client_options(olga.book.coordinator.dns)) as channel:
        answer = channel.unary_unary(f"/{SERVICE}/{CONTROL}")(raw, timeout=10)
    assert b"needs" in answer
    assert b'"exit_code":4' in answer


def test_nobody_at_the_address(olga: Credentials) -> None:
    with pytest.raises(
        TransportError, match=r"operator olga needs a coordinator at 127.0.0.1:1; got connection refused"
    ):
        call("127.0.0.1:1", olga, {})


def test_a_taken_port_is_named(world: World, address: str, tmp_path: Path) -> None:
    hub = Hub(tmp_path, heartbeat=5.0, upload_floor=1.0, clock=time.monotonic)
    with pytest.raises(TransportError, match=f"needs to listen at {address}; got an address that is taken"):
        GrpcServer(hub, world.load("hub"), address, control)
    hub.close()
