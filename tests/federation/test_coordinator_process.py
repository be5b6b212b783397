"""The coordinator's process: what it listens to, and that one which cannot begin leaves nothing behind."""

import http.client
import json
import socket
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.federation.hospitals import found, plan_text
from tests.federation.processes import free_port, until
from tests.transport.credentials.world import DAY, World

from consilia.core.errors import ConsiliaError, PlanError, StoreError, TransportError
from consilia.federation import coordinator_process
from consilia.federation.coordinator_process import CoordinatorProcess
from consilia.plan.load import canonical, from_text
from consilia.transport.grpc.control import call


def config(world: World, *lines: str) -> Path:
    path = world.folder / "hub" / "coordinator.toml"
    path.write_text('listen = "127.0.0.1:0"\nstatus = "127.0.0.1:0"\n' + "\n".join(lines) + "\n")
    return path


def started(path: Path) -> CoordinatorProcess:
    return CoordinatorProcess(path, lambda folder: None)


def page(process: CoordinatorProcess, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", process.status.port, timeout=10)
    connection.request("GET", path)
    answer = connection.getresponse().read()
    connection.close()
    return answer


def test_an_operator_and_the_status_page_are_told_the_same(tmp_path: Path) -> None:
    world = found(tmp_path)
    with started(config(world)) as process:
        olga = world.load("olga")
        address = f"127.0.0.1:{process.server.port}"
        assert call(address, olga, {"do": "submit", "run": "heart-1", "plan": canonical(from_text(plan_text()))})
        by_line, by_page = call(address, olga, {"do": "status"}), json.loads(page(process, "/status"))
        for told in (by_line, by_page):
            told.pop("uptime")
        assert by_line == by_page
        assert by_line["runs"][0]["status"] == "queued"
        assert b'consilia_runs{status="queued"} 1.0' in page(process, "/metrics")
        with pytest.raises(StoreError, match="needs to be in the queue"):
            call(address, olga, {"do": "stop", "run": "heart-9"})


def test_one_process_a_folder(tmp_path: Path) -> None:
    path = config(found(tmp_path))
    with started(path), pytest.raises(StoreError, match="another process that works in it"):
        started(path)
    with started(path):
        pass  # the lock went with the first


@pytest.mark.parametrize("key", ["listen", "fallback", "status"])
def test_one_that_cannot_listen_lets_go_of_everything(tmp_path: Path, key: str) -> None:
    world = found(tmp_path)
    before = threading.active_count()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = {name: free_port() for name in ("listen", "fallback", "status")}
        ports[key] = taken.getsockname()[1]
        path = world.folder / "hub" / "coordinator.toml"
        path.write_text("".join(f'{name} = "127.0.0.1:{port}"\n' for name, port in ports.items()))
        with pytest.raises(TransportError, match=str(ports[key])):
            started(path)
    with started(path) as process:  # the port is free now, and so are the others, the lock and the store
        assert page(process, "/health") == b"ok\n"
    until(lambda: threading.active_count() <= before, seconds=20, what="the end of its threads")


@pytest.mark.parametrize("name", ["north", "olga"])
def test_another_members_folder_is_no_coordinators(tmp_path: Path, name: str) -> None:
    world = World.made(tmp_path, datetime.now(UTC))
    path = tmp_path / name / "coordinator.toml"
    path.write_text('listen = "127.0.0.1:0"\n')
    with pytest.raises(PlanError, match="needs the keys of a member of role coordinator; got role"):
        started(path)
    assert not (world.folder / name / "home").exists()


def test_a_certificate_that_is_over_is_said_at_the_start(tmp_path: Path) -> None:
    world = World.made(tmp_path, datetime.now(UTC) - 1000 * DAY)
    with pytest.raises(ConsiliaError, match="certificate"):
        started(config(world))


def test_a_newer_roster_counts_without_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_process, "_LOOK", 0.05)
    world = found(tmp_path)
    with started(config(world)) as process:
        stop = threading.Event()
        thread = threading.Thread(target=process.run, args=(stop,))
        thread.start()
        try:
            version = process.credentials.book.version
            world.revoke("Hungary")
            world.take("hub")
            until(lambda: process.credentials.book.version == version + 1, seconds=30, what="the newer roster")
            told = json.loads(page(process, "/status"))
            assert told["roster"] == version + 1
            assert "Hungary" not in {site["name"] for site in told["sites"]}
        finally:
            stop.set()
            thread.join(30)
        assert not thread.is_alive()


def test_its_home_is_its_owners_alone(tmp_path: Path) -> None:
    world = found(tmp_path)
    with started(config(world, 'home = "data"')):
        assert (world.folder / "hub" / "data").stat().st_mode & 0o077 == 0
