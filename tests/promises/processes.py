"""Coordinator and sites as processes of their own, which talk over sockets and are killed with SIGKILL.

What is under way when a process dies is lost with it; who comes back dials again, and is asked again what it has not answered.
What crossed is logged before it crosses, with the system's monotonic time, so that the oracle can hear of it afterwards.
"""

import json
import os
import selectors
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path

from tests.promises.fleet import Fleet

from consilia.core.update import Gone
from consilia.rounds.ports import Arrival
from consilia.store import crash

_HEAD = struct.Struct(">I8s")


class Log:
    """What crossed, one JSON line each."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, kind: str, site: str, task: bytes, answer: bytes = b"") -> None:
        line = json.dumps([time.monotonic(), kind, site, task.hex(), answer.hex()])
        with self._path.open("a") as file:
            file.write(line + "\n")


def _write(link: socket.socket, number: bytes, frame: bytes) -> None:
    link.sendall(_HEAD.pack(len(frame), number) + frame)


def _read(link: socket.socket) -> tuple[bytes, bytes] | None:
    head = _exactly(link, _HEAD.size)
    if head is None:
        return None
    size, number = _HEAD.unpack(head)
    frame = _exactly(link, size)
    return None if frame is None else (number, frame)


def _exactly(link: socket.socket, size: int) -> bytes | None:
    found = b""
    while len(found) < size:
        try:
            part = link.recv(size - len(found))
        except ConnectionError:
            return None
        if not part:
            return None
        found += part
    return found


class Sockets:
    """The coordinator's end: sites dial in, and say who they are. One task a site is under way."""

    def __init__(self, path: Path, log: Log) -> None:
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(16)
        self._chosen = selectors.DefaultSelector()
        self._chosen.register(self._listener, selectors.EVENT_READ, "")
        self._links: dict[str, socket.socket] = {}
        self._tasks: dict[str, tuple[bytes, bytes]] = {}
        self._log = log

    def send(self, site: str, frame: bytes) -> None:
        self._tasks[site] = os.urandom(8), frame
        self._log.note("told", site, frame)
        self._push(site)

    def events(self, timeout: float, of: Collection[str] | None = None) -> Iterator[Arrival | Gone]:
        end = time.monotonic() + timeout
        while self._tasks and (left := end - time.monotonic()) > 0:
            for key, _ in self._chosen.select(left):
                name = str(key.data)
                if not name:
                    self._accept()
                    continue
                found = _read(self._links[name])
                if found is None:
                    self._drop(name)
                elif name in self._tasks and found[0] == self._tasks[name][0]:
                    del self._tasks[name]
                    yield Arrival(name, found[1])
        self._tasks = {}

    def _accept(self) -> None:
        link, _ = self._listener.accept()
        hello = _read(link)
        if hello is None:
            link.close()
            return
        name = hello[1].decode()
        self._drop(name)
        self._links[name] = link
        self._chosen.register(link, selectors.EVENT_READ, name)
        self._push(name)

    def _push(self, site: str) -> None:
        if site in self._links and site in self._tasks:
            try:
                _write(self._links[site], *self._tasks[site])
            except OSError:
                self._drop(site)

    def _drop(self, name: str) -> None:
        link = self._links.pop(name, None)
        if link is not None:
            self._chosen.unregister(link)
            link.close()


def coordinate(fleet: Fleet, hub: Path, log: Log) -> None:
    """Be the coordinator until the run is over."""
    sockets = Sockets(hub, log)
    with fleet.open_journal() as journal:
        if journal.status != "running":
            return
        coordinator = fleet.coordinator(journal, sockets, time.monotonic)
        coordinator.train()
        fleet.finish(coordinator, journal)


def serve(fleet: Fleet, name: str, hub: Path, log: Log, started: Callable[[str, object], None]) -> None:
    """Be a site for ever."""
    site, _ = fleet.open_site(name)
    started(name, site)
    while True:
        with socket.socket(socket.AF_UNIX) as link:
            try:
                link.connect(str(hub))
                _write(link, bytes(8), name.encode())
            except OSError:
                time.sleep(0.003)
                continue
            while (task := _read(link)) is not None:
                answer = site.handle(task[1])
                log.note("left", name, task[1], answer)
                with suppress(OSError):
                    _write(link, task[0], answer)


def spawn(work: Callable[[], None], said: Path, dies: tuple[str, int] | None = None) -> int:
    """Fork a process; return its id. It writes what went wrong to a file."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        if dies is not None:
            crash._target, crash._remaining = dies
        work()
        code = 0
    except BaseException as error:
        said.write_text(f"{type(error).__name__}: {error}")
    finally:
        os._exit(code)
