"""The coordinator's port among strangers, flapping sites and members that are thrown out."""

import logging
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.contracts.transports import Settings, grpc
from tests.transport.credentials.world import World
from tests.transport.link.waiting import PATIENCE, until

from consilia.core.update import Bytes
from consilia.rounds.ports import Arrival
from consilia.transport.grpc.server import GrpcServer


def echo(frame: Bytes) -> bytes:
    return bytes(frame)


def test_strangers_at_the_port_disturb_nobody(tmp_path: Path) -> None:
    with grpc(tmp_path, {"a": echo}, Settings()) as rig:
        rig.start("a")
        silent = [socket.create_connection(("127.0.0.1", rig.port)) for _ in range(20)]
        try:
            for rubbish in (b"", b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", os.urandom(100_000)):
                with socket.create_connection(("127.0.0.1", rig.port)) as line:
                    try:
                        line.sendall(rubbish)
                        line.shutdown(socket.SHUT_WR)
                    except OSError:
                        continue  # the port hung up first
            rig.hub.send("a", b"still here")
            assert list(rig.hub.events(PATIENCE)) == [Arrival("a", b"still here")]
        finally:
            for line in silent:
                line.close()


def test_a_member_that_is_thrown_out_loses_its_stream(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with grpc(tmp_path, {"a": echo, "b": echo}, Settings()) as rig:
        world, server = World(tmp_path / "consortium", datetime.now(UTC)), rig.server
        assert isinstance(server, GrpcServer)
        for site in "ab":
            rig.start(site)
        world.revoke("a", "its laptop was stolen")
        world.take("hub")
        server.reload(world.load("hub"))
        until(lambda: not rig.connected("a"))
        until(lambda: "a refusal: the certificate of site a" in caplog.text)
        assert "its laptop was stolen" in caplog.text
        assert rig.connected("b")
        assert not rig.connected("a")


def test_coming_and_going_leaves_no_open_files(tmp_path: Path) -> None:
    with grpc(tmp_path, {"a": echo}, Settings()) as rig:

        def visit() -> int:
            rig.start("a")
            rig.hub.send("a", bytes(2_000_000))
            [event] = rig.hub.events(PATIENCE)
            assert isinstance(event, Arrival)
            rig.stop("a")
            return len(os.listdir("/proc/self/fd"))

        visit()
        before = visit()
        for _ in range(10):
            visit()
        until(lambda: len(os.listdir("/proc/self/fd")) <= before + 2)


def test_two_processes_of_one_site_take_turns_and_both_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with grpc(tmp_path, {"a": echo}, Settings()) as rig:
        rig.start("a")
        first = rig.running.pop("a")
        rig.begin("a")
        until(lambda: "the same site has opened a newer stream" in caplog.text)
        rig.hub.send("a", b"whoever")
        assert list(rig.hub.events(PATIENCE)) == [Arrival("a", b"whoever")]
        rig.running["the first"] = first
