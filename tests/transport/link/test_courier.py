"""A courier and a hub over a link that breaks: nothing is lost, done twice or answered twice."""

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.transport.link.inboxes import MemoryInbox
from tests.transport.link.pipe import Pipe
from tests.transport.link.waiting import PATIENCE, until

from consilia.core.errors import StoreError, TransportError
from consilia.core.update import Bytes
from consilia.rounds.ports import Arrival
from consilia.transport.link.courier import Courier
from consilia.transport.link.hub import Hub
from consilia.transport.link.ports import Link, Stream

FOREVER = itertools.repeat(1 << 60)


@contextlib.contextmanager
def hub_in(folder: Path, heartbeat: float = 5.0) -> Iterator[Hub]:
    hub = Hub(folder / "spool", heartbeat=heartbeat, upload_floor=1.0, clock=time.monotonic, limit=1 << 26)
    try:
        yield hub
    finally:
        hub.close()


@contextlib.contextmanager
def courier(
    folder: Path, links: list[Link], handle: Callable[[Bytes], bytes], inbox: MemoryInbox | None = None,
    leaves: Callable[[bytes, bytes], None] = lambda id, frame: None,
) -> Iterator[threading.Event]:  # fmt: skip
    stop = threading.Event()
    made = Courier("a", links, inbox or MemoryInbox(), handle, spool=folder / "a", leaves=leaves, retry_cap=0.01,
                   clock=time.monotonic)  # fmt: skip
    thread = threading.Thread(target=made.run, args=(stop,))
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_flapping_loses_nothing(tmp_path: Path) -> None:
    handled: list[bytes] = []
    left: list[bytes] = []

    def handle(frame: Bytes) -> bytes:
        handled.append(bytes(frame[:8]))
        return bytes(frame) * 2

    chance = random.Random(1)
    lives = iter(lambda: chance.randint(3, 14), None)
    frames = [chance.randbytes(size) for size in (0, 1, 1000, 100_000, 1 << 20, 3_000_000, 17)]
    with hub_in(tmp_path) as hub:
        pipe = Pipe(hub, "a", lives)
        with courier(tmp_path, [pipe], handle, leaves=lambda id, frame: left.append(frame)):
            for frame in frames:
                hub.send("a", frame)
            assert list(hub.events(PATIENCE * 3)) == [Arrival("a", frame * 2) for frame in frames]
        assert pipe.streams > 5
        assert handled == [frame[:8] for frame in frames]
        assert left == [frame * 2 for frame in frames]
        counts = hub.sites()["a"].counts
        assert counts.get("contradicting", 0) == counts.get("late", 0) == 0


@settings(max_examples=25, deadline=None)
@given(lives=st.lists(st.integers(0, 12), max_size=12), sizes=st.lists(st.integers(0, 400_000), min_size=1, max_size=4))
def test_however_streams_end_each_frame_is_answered_once(
    tmp_path_factory: pytest.TempPathFactory, lives: list[int], sizes: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("flap")
    handled: list[int] = []

    def handle(frame: Bytes) -> bytes:
        handled.append(len(frame))
        return bytes(frame)

    with hub_in(folder) as hub, courier(folder, [Pipe(hub, "a", itertools.chain(lives, FOREVER))], handle):
        for number, size in enumerate(sizes):
            hub.send("a", bytes([number]) * size)
        expected = [Arrival("a", bytes([number]) * size) for number, size in enumerate(sizes)]
        assert list(hub.events(PATIENCE)) == expected
    assert handled == sizes


def test_a_restarted_courier_answers_the_same_again_without_handling(tmp_path: Path) -> None:
    inbox, handled = MemoryInbox(), threading.Event()
    answers = iter([b"first", b"second"])

    def handle(frame: Bytes) -> bytes:
        handled.set()
        time.sleep(0.3)  # the stop comes meanwhile
        return next(answers)

    with hub_in(tmp_path) as hub:
        with courier(tmp_path, [Pipe(hub, "a", FOREVER)], handle, inbox):
            hub.send("a", b"task")
            assert handled.wait(PATIENCE)
        assert list(inbox.answers.values()) == [b"first"]  # finished, kept, and not sent
        with courier(tmp_path, [Pipe(hub, "a", FOREVER)], handle, inbox):
            assert list(hub.events(PATIENCE)) == [Arrival("a", b"first")]


def test_a_large_task_whose_answer_is_kept_is_not_fetched_again(tmp_path: Path) -> None:
    inbox, handled, task = MemoryInbox(), [], bytes(5_000_000)

    def handle(frame: Bytes) -> bytes:
        handled.append(len(frame))
        return b"done"

    with hub_in(tmp_path) as hub:
        hub.send("a", task)
        # The stream breaks when the task is there, so the answer is kept and does not get through.
        lives = itertools.chain([2 + 1_000_000], itertools.repeat(1 << 60))
        with courier(tmp_path, [Pipe(hub, "a", lives)], handle, inbox, lambda id, frame: None):
            until(lambda: inbox.answers)
        down = hub.sites()["a"].counts["down"]
        assert down >= len(task)
        with courier(tmp_path, [Pipe(hub, "a", lives)], handle, inbox):
            assert list(hub.events(PATIENCE)) == [Arrival("a", b"done")]
        assert hub.sites()["a"].counts["down"] - down < 1_000_000
    assert handled == [len(task)]


def test_a_message_that_waits_while_another_is_handled_may_be_withdrawn(tmp_path: Path) -> None:
    go, handled = threading.Event(), []

    def handle(frame: Bytes) -> bytes:
        handled.append(bytes(frame))
        go.wait(PATIENCE)
        return bytes(frame)

    with hub_in(tmp_path) as hub, courier(tmp_path, [Pipe(hub, "a", FOREVER)], handle):
        hub.send("a", b"1")
        hub.send("a", b"2")
        until(lambda: handled)
        assert len(list(hub.events(0.05))) == 2
        hub.send("a", b"3")
        time.sleep(0.1)
        go.set()
        assert list(hub.events(PATIENCE)) == [Arrival("a", b"3")]
    assert handled == [b"1", b"3"]


def test_heartbeats_keep_a_stream_while_a_frame_is_handled(tmp_path: Path) -> None:
    def handle(frame: Bytes) -> bytes:
        time.sleep(1.0)  # ten heartbeats
        return b"trained"

    with hub_in(tmp_path, heartbeat=0.1) as hub:
        pipe = Pipe(hub, "a", FOREVER)
        with courier(tmp_path, [pipe], handle):
            until(lambda: hub.sites() and hub.sites()["a"].connected)
            hub.send("a", b"train")
            assert list(hub.events(PATIENCE)) == [Arrival("a", b"trained")]
        assert pipe.streams == 1


class Nowhere:
    """A way that leads nowhere."""

    def __init__(self, where: str = "nowhere", got: Iterable[str] = itertools.repeat("nothing")) -> None:
        self.where = where
        self.times: list[float] = []
        self._got = iter(got)

    async def connect(self) -> Stream:
        self.times.append(time.monotonic())
        raise TransportError.of("site a", needs="a coordinator", got=next(self._got), hint="")


def test_the_next_link_is_tried_when_one_fails(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nowhere = Nowhere()
    with hub_in(tmp_path) as hub, courier(tmp_path, [nowhere, Pipe(hub, "a", FOREVER)], bytes):
        hub.send("a", b"1")
        assert list(hub.events(PATIENCE)) == [Arrival("a", b"1")]
    assert len(nowhere.times) == 1
    assert "nowhere: site a needs a coordinator; got nothing." in caplog.text


def tried(folder: Path, links: list[Nowhere], times: int, retry_cap: float) -> None:
    stop = threading.Event()
    made = Courier("a", links, MemoryInbox(), bytes, spool=folder / "a", leaves=lambda id, frame: None,
                   retry_cap=retry_cap, clock=time.monotonic)  # fmt: skip
    thread = threading.Thread(target=made.run, args=(stop,))
    thread.start()
    until(lambda: len(links[-1].times) >= times)
    stop.set()
    thread.join(PATIENCE)


def test_attempts_become_rarer_and_one_fault_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nowhere = Nowhere()
    tried(tmp_path, [nowhere], 6, 0.5)
    gaps = [after - before for before, after in itertools.pairwise(nowhere.times)]
    assert all(gap >= at_least for gap, at_least in zip(gaps, (0.1, 0.2, 0.25, 0.25, 0.25), strict=True))
    assert [record.getMessage() for record in caplog.records] == [
        "nowhere: site a needs a coordinator; got nothing. Attempts go on, at most 0.5 s apart"
    ]


def test_a_fault_is_said_again_when_it_is_another_and_each_way_has_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "consilia.courier")
    ways = [Nowhere("grpc", ["refused", "refused", "no name", *["refused"] * 1000]), Nowhere("https")]
    tried(tmp_path, ways, 8, 0.01)
    first, *said = [record.getMessage() for record in caplog.records]
    assert first == "looking for the coordinator at grpc or https"  # at once: the first attempt may take its time
    assert [line.split(" Attempts")[0].replace("site a needs a coordinator; ", "") for line in said] == [
        "grpc: got refused.", "https: got nothing.", "grpc: got no name.", "grpc: got refused.",
    ]  # fmt: skip


def test_what_is_not_in_the_audit_log_does_not_leave(tmp_path: Path) -> None:
    def full(id: bytes, frame: bytes) -> None:
        raise StoreError.of("the audit log", needs="space", got="none", hint="")

    with hub_in(tmp_path) as hub, courier(tmp_path, [Pipe(hub, "a", FOREVER)], bytes, leaves=full):
        hub.send("a", b"secret")
        [event] = hub.events(PATIENCE)
    assert event.reason == "it failed on the message"  # type: ignore[union-attr]


def test_other_bytes_under_a_known_id_are_refused(tmp_path: Path) -> None:
    inbox, handled = MemoryInbox(), []
    seen = inbox.seen
    inbox.seen = lambda id, digest: seen(bytes(16), digest)  # type: ignore[method-assign]
    inbox.begin = lambda id, digest: inbox.digests.update({bytes(16): digest})  # type: ignore[method-assign]

    def handle(frame: Bytes) -> bytes:
        handled.append(bytes(frame))
        return b"fine"

    with hub_in(tmp_path) as hub, courier(tmp_path, [Pipe(hub, "a", FOREVER)], handle, inbox):
        hub.send("a", b"1")
        assert list(hub.events(PATIENCE)) == [Arrival("a", b"fine")]
        hub.send("a", b"2")
        [event] = hub.events(PATIENCE)
    assert event.reason == "it has seen other bytes under the same message id"  # type: ignore[union-attr]
    assert handled == [b"1"]
