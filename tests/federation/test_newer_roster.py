"""A running coordinator takes a newer roster from its folder, at both of its doors."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.transport.credentials.world import World

from consilia.core.errors import TransportError
from consilia.federation import coordinator_process
from consilia.federation.coordinator_process import CoordinatorProcess
from consilia.transport.grpc.link import GrpcLink
from consilia.transport.link.ports import Link
from consilia.transport.longpoll.client import LongPoll


@contextmanager
def running(process: CoordinatorProcess) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=process.run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(20)
        assert not thread.is_alive()


def test_a_revoked_site_is_refused_at_both_doors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_process, "_LOOK", 0.05)
    world = World.made(tmp_path, datetime.now(UTC).replace(microsecond=0))
    config = world.folder / "hub" / "coordinator.toml"
    config.write_text('listen = "127.0.0.1:0"\nfallback = "127.0.0.1:0"\nstatus = "127.0.0.1:0"\n')
    north, south = world.load("north"), world.load("south")
    with asyncio.Runner() as runner, CoordinatorProcess(config, lambda folder: None) as process, running(process):
        fallback = process.fallback
        assert fallback is not None
        doors: list[Callable[..., Link]] = [
            lambda own: GrpcLink(f"127.0.0.1:{process.server.port}", own),
            lambda own: LongPoll(f"127.0.0.1:{fallback.port}", own),
        ]

        def said(link: Link) -> str:
            """Return why a stream is not opened, or nothing."""

            async def main() -> str:
                try:
                    stream = await link.connect()
                except TransportError as error:
                    return str(error)
                await stream.close()
                return ""

            return runner.run(main())

        assert [said(door(own)) for door in doors for own in (north, south)] == [""] * 4
        world.revoke("south", "its laptop was stolen")
        (world.folder / "hub" / "roster.json").write_bytes(b"{}")  # half of a copy: the roster before goes on to count
        time.sleep(0.2)
        assert [said(door(own)) for door in doors for own in (north, south)] == [""] * 4
        world.take("hub")
        for door in doors:
            end = time.monotonic() + 20
            while "its laptop was stolen" not in said(door(south)):
                assert time.monotonic() < end
            assert said(door(north)) == ""
