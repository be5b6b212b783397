"""Rounds over a hub and couriers beside the same bytes over bare TLS sockets, to the same processes, in turns."""

import contextlib
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from benchmarks.timing.clock import Moment, quartiles
from benchmarks.timing.links_site import SIZES, content, context, receive
from consilia.core.canonical import Json
from consilia.core.randomness import SecretRng
from consilia.core.update import Gone
from consilia.transport.credentials import member
from consilia.transport.credentials.credentials import Credentials
from consilia.transport.credentials.names import Role
from consilia.transport.credentials.office import Office
from consilia.transport.grpc.server import GrpcServer
from consilia.transport.link.hub import Hub

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 60.0
SMALL = 100


@dataclass(frozen=True)
class Step:
    """One exchange with every site: bytes down and bytes up."""

    down: int
    up: int


def consortium(folder: Path, sites: Sequence[str], operators: Sequence[str] = ()) -> None:
    """Make the folders of a coordinator, of sites and of operators."""
    now, rng = datetime.now(UTC), SecretRng(bytes(32))
    Office.found(folder / "consortium", "benchmark", rng.derive("office"), now)
    roles: dict[str, Role] = {"hub": "coordinator", **dict.fromkeys(sites, "site")}
    roles |= dict.fromkeys(operators, "operator")
    requests = [member.join(folder / name, name, role, rng.derive(name)).request for name, role in roles.items()]
    Office.open(folder / "consortium").sign(requests, now)
    for name in roles:
        member.install(folder / name, name, folder / "consortium" / "roster.json", now, lambda book: True)


def task(step: Step) -> bytes:
    """Return what a site is sent."""
    size = max(step.down, SIZES.size)
    return SIZES.pack(size, step.up) + content(size - SIZES.size)


class Both:
    """A coordinator that reaches the same sites over a hub and over bare sockets.

    Attributes:
        hub: Has a stream of every site.
    """

    def __init__(self, hub: Hub, lines: Sequence[ssl.SSLSocket], sites: Sequence[str]) -> None:
        self.hub = hub
        self._lines = lines
        self._sites = sites
        self._buffers = [memoryview(bytearray(1 << 23)) for _ in lines]

    def over_hub(self, steps: Sequence[Step]) -> Moment:
        """Return what these exchanges take over the hub."""
        frames = [task(step) for step in steps]
        begun = Moment.now()
        for step, frame in zip(steps, frames, strict=True):
            for site in self._sites:
                self.hub.send(site, frame)
            for event in self.hub.events(PATIENCE):
                if isinstance(event, Gone) or len(event.frame) != step.up:
                    raise RuntimeError("a site did not answer")
        return Moment.now() - begun

    def bare(self, steps: Sequence[Step]) -> Moment:
        """Return what they take over bare sockets, a thread for each."""
        frames = [task(step) for step in steps]
        begun = Moment.now()
        for step, frame in zip(steps, frames, strict=True):
            threads = [
                threading.Thread(target=_one, args=(line, frame, buffer[: step.up]))
                for line, buffer in zip(self._lines, self._buffers, strict=True)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return Moment.now() - begun


def _one(line: ssl.SSLSocket, frame: bytes, buffer: memoryview) -> None:
    line.sendall(frame)
    receive(line, buffer)


@contextlib.contextmanager
def running(count: int, inbox: Literal["durable", "forgetful"] = "forgetful") -> Iterator[Both]:
    """Start a coordinator and sites, each of them a process, whose inbox is on disk or is none."""
    names = [f"site-{number}" for number in range(count)]
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        folder = Path(place)
        consortium(folder, names)
        own = Credentials.load(folder / "hub")
        hub = Hub(folder / "spool", heartbeat=15.0, upload_floor=20_000, clock=time.monotonic)
        stack.callback(hub.close)
        server = GrpcServer(hub, own, "127.0.0.1:0", lambda entry, request: request)
        stack.callback(server.close)
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        bare_port = listening.getsockname()[1]
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.timing.links_site", str(folder), name, str(server.port),
                 str(bare_port), str(folder / "home"), inbox], cwd=ROOT,
            ) for name in names
        ]  # fmt: skip
        stack.callback(lambda: [process.wait(PATIENCE) for process in processes])
        secure = context(ssl.PROTOCOL_TLS_SERVER, own, folder / "hub")
        lines = []
        for _ in names:
            plain, _ = listening.accept()
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            lines.append(stack.enter_context(secure.wrap_socket(plain, server_side=True)))
        while sum(seen.connected for seen in hub.sites().values()) < count:
            time.sleep(0.01)
        yield Both(hub, lines, names)


def in_turns(
    first: Callable[[], Moment], second: Callable[[], Moment], pairs: int
) -> tuple[list[Moment], list[Moment]]:
    """Return what both take, in pairs that take turns at going first; three pairs are not counted."""
    took: tuple[list[Moment], list[Moment]] = ([], [])
    for number in range(pairs + 3):
        if number % 2:
            two, one = second(), first()
        else:
            one, two = first(), second()
        if number >= 3:
            took[0].append(one)
            took[1].append(two)
    return took


def ratio(above: Sequence[Moment], below: Sequence[Moment]) -> dict[str, float]:
    """Return the quartiles of the pairs' ratios, by the clock on the wall."""
    return quartiles([one.wall / two.wall for one, two in zip(above, below, strict=True)])


def milliseconds(times: Sequence[Moment]) -> dict[str, float]:
    """Return the quartiles of times."""
    return quartiles([1e3 * one.wall for one in times])


def plain(parameters: int) -> list[Step]:
    """Return a plain round: the model down, the update up."""
    return [Step(4 * parameters + 400, 4 * parameters + 400)]


def secure(parameters: int, sites: int) -> list[Step]:
    """Return a secure round: the model down and keys up; keys and shares; the masked update up; what opens the sum."""
    return [
        Step(4 * parameters + 400, 1000), Step(600 * sites, 400 * sites), Step(500 * sites, 4 * parameters + 400),
        Step(200 * sites, 200 * sites),
    ]  # fmt: skip


def beside_bare(both: Both, steps: Sequence[Step], pairs: int) -> dict[str, Json]:
    """Compare exchanges over the hub with the same over bare sockets."""
    ours, bare = in_turns(lambda: both.over_hub(steps), lambda: both.bare(steps), pairs)
    cpu = quartiles([one.cpu / two.cpu for one, two in zip(ours, bare, strict=True)])
    return {"ratio": ratio(ours, bare), "hub_ms": milliseconds(ours), "bare_ms": milliseconds(bare), "pairs": pairs,
            "coordinator_cpu_ratio": cpu}  # fmt: skip


def secure_over_plain(both: Both, parameters: int, sites: int, pairs: int) -> dict[str, Json]:
    """Compare a secure round with a plain one, both over the hub."""
    four, one = secure(parameters, sites), plain(parameters)
    above, below = in_turns(lambda: both.over_hub(four), lambda: both.over_hub(one), pairs)
    return {
        "ratio": ratio(above, below),
        "secure_ms": milliseconds(above),
        "plain_ms": milliseconds(below),
        "pairs": pairs,
    }


def anonymous() -> int:
    """Return the bytes of this process that no file backs."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("RssAnon")))


@contextlib.contextmanager
def peak(found: list[int]) -> Iterator[None]:
    """Watch `anonymous` and append how far it went beyond its start."""
    start, ended, most = anonymous(), threading.Event(), [0]

    def watch() -> None:
        while not ended.wait(0.001):
            most[0] = max(most[0], anonymous() - start)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        found.append(most[0])


def memory(both: Both, sites: int, size: int, times: int) -> dict[str, Json]:
    """Return how far the coordinator's memory grows while every site sends an answer of this size, all of them kept."""
    found: list[int] = []
    for _ in range(times):
        with peak(found):
            both.over_hub([Step(SMALL, size)])
    return {"sites": sites, "answer_mb": size / 1e6, "growth_mb": quartiles([one / 1e6 for one in found])}
