"""A site's process is killed at each step of answering a message: the same id is answered once, with the same bytes."""

import hashlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.transport.credentials.world import World
from tests.transport.link.waiting import PATIENCE

from consilia.rounds.ports import Arrival
from consilia.transport.credentials.names import Role
from consilia.transport.grpc.server import GrpcServer
from consilia.transport.link.hub import Hub

ROOT = Path(__file__).resolve().parents[3]
COURIER = ("received", "begun", "handled", "kept", "sent")
POINTS = [f"courier.{point}:{count}" for point in COURIER for count in (1, 2)] + [
    "inbox.begin.written", "inbox.begin.committed", "inbox.keep.written", "inbox.keep.committed",
]  # fmt: skip

SIZES = (100, 2_000_000)


class Workshop:
    """Starts sites in processes of their own, one after the other, and sees them die."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.transport.link.kill_worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, cwd=ROOT,
        )  # fmt: skip

    def _say(self, what: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def _hear(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def start(self, **case: str) -> int:
        self._say(case)
        pid = self._hear()
        assert isinstance(pid, int)
        return pid

    def end(self, pid: int) -> int:
        """Wait for a site's end; return the signal that killed it."""
        dead, status = self._hear()
        assert dead == pid
        return int(status)

    def stop(self, pid: int) -> None:
        self._say({"stop": pid})
        assert self.end(pid) == 0

    def close(self) -> None:
        self._process.communicate(timeout=PATIENCE)


@pytest.fixture(scope="module")
def workshop() -> Iterator[Workshop]:
    made = Workshop()
    yield made
    made.close()


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Hub, GrpcServer]]:
    folder = tmp_path_factory.mktemp("consortium")
    sites = [_name(f"{point}-{size}") for point in POINTS for size in SIZES]
    roles: dict[str, Role] = {"hub": "coordinator", **dict.fromkeys(sites, "site")}
    world = World.made(folder / "world", datetime.now(UTC), roles)
    hub = Hub(folder / "spool", heartbeat=5.0, upload_floor=1.0, clock=time.monotonic)
    server = GrpcServer(hub, world.load("hub"), "127.0.0.1:0", lambda entry, request: request)
    yield world, hub, server
    server.close()
    hub.close()


def _name(text: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in text)


def killed(
    point: str, size: int, workshop: Workshop, consortium: tuple[World, Hub, GrpcServer], home: Path, forgets: str = ""
) -> tuple[list[str], list[str], list[set[str]]]:
    """Kill a site at a point while it answers two frames.

    Returns:
        Digests of the frames it handled, of the answers that the coordinator took, and of those that left under each id.
    """
    world, hub, server = consortium
    name = _name(f"{point}-{size}")
    case = {"folder": str(world.folder / name), "home": str(home), "name": name, "port": str(server.port), "size": str(size),
            "forgets": forgets}  # fmt: skip
    pid, answers = workshop.start(crash=point, **case), []
    for number, frame in enumerate((b"first", b"second" * 300_000), 1):
        hub.send(name, frame)
        if number == (2 if point.endswith(":2") else 1):
            assert workshop.end(pid) == signal.SIGKILL
            pid = workshop.start(crash="", **case)
        answers += list(hub.events(PATIENCE))
    workshop.stop(pid)
    counts = hub.sites()[name].counts
    assert counts.get("contradicting", 0) == counts.get("late", 0) == 0
    left: dict[str, set[str]] = {}
    for line in (home / "left").read_text().splitlines():
        id, digest = line.split()
        left.setdefault(id, set()).add(digest)
    given = [hashlib.sha256(answer.frame).hexdigest() for answer in answers if isinstance(answer, Arrival)]
    return (home / "handled").read_text().splitlines(), given, list(left.values())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("point", POINTS)
def test_killed_and_back(
    point: str, size: int, workshop: Workshop, consortium: tuple[World, Hub, GrpcServer], tmp_path: Path
) -> None:
    handled, given, left = killed(point, size, workshop, consortium, tmp_path)
    assert len(given) == 2
    assert left == [{digest} for digest in given]
    again = "handled" in point or point.startswith("inbox.keep.written")  # nothing of the first try had left
    assert len(handled) == (3 if again else 2)


def test_a_site_that_forgets_would_be_seen(
    workshop: Workshop, consortium: tuple[World, Hub, GrpcServer], tmp_path: Path
) -> None:
    handled, _, _ = killed("courier.kept:1", SIZES[0], workshop, consortium, tmp_path, forgets="yes")
    assert len(handled) == 3
