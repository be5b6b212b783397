"""A disk that is full in the middle of a message: that message fails with a reason, everything else goes on.

The kernel refuses writes beyond a limit on the size of files, as it does on a full disk; both ends share this process.
"""

import contextlib
import itertools
import resource
from collections.abc import Iterator
from pathlib import Path

from tests.transport.link.pipe import Pipe
from tests.transport.link.test_courier import courier, hub_in
from tests.transport.link.waiting import PATIENCE

from consilia.core.update import Bytes, Gone
from consilia.rounds.ports import Arrival

FOREVER = itertools.repeat(1 << 60)


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def swell(frame: Bytes) -> bytes:
    """Answer "5" by 5 MB, and anything else by itself."""
    return bytes(5_000_000) if frame == b"5" else bytes(frame[:10])


def test_a_coordinator_that_cannot_keep_a_task_loses_that_task_alone(tmp_path: Path) -> None:
    with hub_in(tmp_path) as hub, courier(tmp_path, [Pipe(hub, "a", FOREVER)], swell):
        with files_of_at_most(2_000_000):
            hub.send("a", bytes(5_000_000))
            assert list(hub.events(PATIENCE)) == [
                Gone("a", "the coordinator has no disk space for a message of 5000000 bytes")
            ]
        hub.send("a", bytes(5_000_000))
        assert list(hub.events(PATIENCE)) == [Arrival("a", bytes(10))]


def test_a_coordinator_that_cannot_keep_an_answer_loses_that_answer_alone(tmp_path: Path) -> None:
    pipe_of = Pipe
    with hub_in(tmp_path) as hub:
        pipe = pipe_of(hub, "a", FOREVER)
        with courier(tmp_path, [pipe], swell):
            with files_of_at_most(2_000_000):
                hub.send("a", b"5")
                assert list(hub.events(PATIENCE)) == [
                    Gone("a", "the coordinator has no disk space for its answer of 5000000 bytes")
                ]
            hub.send("a", b"fine")
            assert list(hub.events(PATIENCE)) == [Arrival("a", b"fine")]
            hub.send("a", b"5")
            assert list(hub.events(PATIENCE)) == [Arrival("a", bytes(5_000_000))]
        assert pipe.streams == 1


def test_a_site_that_cannot_keep_a_task_says_so_and_stays(tmp_path: Path) -> None:
    with hub_in(tmp_path) as hub:
        hub.send("a", bytes(5_000_000))
        pipe = Pipe(hub, "a", FOREVER)
        with files_of_at_most(2_000_000), courier(tmp_path, [pipe], swell):
            assert list(hub.events(PATIENCE)) == [Gone("a", "it has no disk space for the message")]
            hub.send("a", b"fine")
            assert list(hub.events(PATIENCE)) == [Arrival("a", b"fine")]
        assert pipe.streams == 1
