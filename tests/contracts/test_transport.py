"""What every `Transport` owes the coordinator; and, where there is a network, what it owes it over a bad one."""

import threading
import time
from pathlib import Path

import pytest
from tests.contracts.transports import TRANSPORTS, WIRED, Handle, Make, MakeWired, Settings, Wired
from tests.transport.link.waiting import PATIENCE, until

from consilia.core.errors import ProtocolError
from consilia.core.update import Bytes, Gone
from consilia.rounds.ports import Arrival, Transport

every_transport = pytest.mark.parametrize("make", TRANSPORTS.values(), ids=TRANSPORTS)
every_wired = pytest.mark.parametrize("make", WIRED.values(), ids=WIRED)
LARGE = bytes(range(256)) * 80_000  # 20 MB


def echo(site: str) -> Handle:
    return lambda frame: site.encode() + b" had " + bytes(frame)


def echoes(sites: str) -> dict[str, Handle]:
    return {site: echo(site) for site in sites}


def everyone(rig: object) -> None:
    """Start all sites, where that is a thing to do."""
    if isinstance(rig, Wired):
        for site in rig.handles:
            rig.begin(site)
        until(lambda: all(rig.connected(site) for site in rig.handles))


def asked(transport: Transport, frames: dict[str, bytes], timeout: float = PATIENCE) -> dict[str, bytes | str]:
    """Return what each site answered, or why it did not."""
    for site, frame in frames.items():
        transport.send(site, frame)
    found: dict[str, bytes | str] = {}
    for event in transport.events(timeout):
        assert event.site not in found
        found[event.site] = event.reason if isinstance(event, Gone) else bytes(event.frame)
    return found


@every_transport
def test_each_site_answers_its_own_frame(make: Make, tmp_path: Path) -> None:
    with make(tmp_path, echoes("abc"), Settings()) as rig:
        everyone(rig)
        for number in range(3):
            frames = {site: f"{site} {number}".encode() for site in "cab"}
            assert asked(rig.transport, frames) == {
                site: site.encode() + b" had " + frame for site, frame in frames.items()
            }
        assert asked(rig.transport, {}) == {}


@every_transport
def test_frames_of_any_bytes_pass(make: Make, tmp_path: Path) -> None:
    with make(tmp_path, {"a": bytes}, Settings()) as rig:
        everyone(rig)
        for frame in (b"", b"\0", bytes(1 << 16), bytes(range(256)) * 4096, bytes((1 << 20) + 1)):
            assert asked(rig.transport, {"a": frame}) == {"a": frame}


@every_transport
def test_two_frames_to_one_site_have_two_answers(make: Make, tmp_path: Path) -> None:
    with make(tmp_path, echoes("a"), Settings()) as rig:
        everyone(rig)
        rig.transport.send("a", b"1")
        rig.transport.send("a", b"2")
        assert list(rig.transport.events(PATIENCE)) == [Arrival("a", b"a had 1"), Arrival("a", b"a had 2")]


@every_transport
def test_a_site_that_is_not_there_is_gone_before_the_deadline(make: Make, tmp_path: Path) -> None:
    with make(tmp_path, echoes("ab"), Settings(heartbeat=0.1)) as rig:
        everyone(rig)
        begun = time.monotonic()
        assert asked(rig.transport, {"a": b"1", "x": b"1", "b": b"1"}, 600.0) == {
            "a": b"a had 1", "b": b"b had 1", "x": "not connected",
        }  # fmt: skip
        assert time.monotonic() - begun < PATIENCE


@every_transport
def test_an_answer_after_the_deadline_is_neither_of_this_round_nor_of_the_next(make: Make, tmp_path: Path) -> None:
    go = threading.Event()

    def slow(frame: Bytes) -> bytes:
        if frame == b"1":
            go.wait(0.3)
        return b"late " + bytes(frame)

    with make(tmp_path, {"a": slow, "b": echo("b")}, Settings()) as rig:
        everyone(rig)
        found = asked(rig.transport, {"b": b"1", "a": b"1"}, 0.2)
        assert found == {"a": "no answer before the deadline", "b": b"b had 1"}
        assert asked(rig.transport, {"a": b"2", "b": b"2"}) == {"a": b"late 2", "b": b"b had 2"}


@every_transport
def test_a_round_may_wait_for_some_sites_alone(make: Make, tmp_path: Path) -> None:
    with make(tmp_path, echoes("abc"), Settings()) as rig:
        everyone(rig)
        for site in "abc":
            rig.transport.send(site, b"1")
        found = list(rig.transport.events(PATIENCE, of={"b"}))
        assert Arrival("b", b"b had 1") in found
        found += rig.transport.events(PATIENCE)
        assert sorted(event.site for event in found) == ["a", "b", "c"]
        assert all(isinstance(event, Arrival) for event in found)


@every_transport
def test_who_stops_listening_early_loses_nothing(make: Make, tmp_path: Path) -> None:
    with make(tmp_path, echoes("abc"), Settings()) as rig:
        everyone(rig)
        for site in "abc":
            rig.transport.send(site, b"1")
        first = next(iter(rig.transport.events(PATIENCE)))  # as many as are needed; the rest goes on
        rest = list(rig.transport.events(PATIENCE))
        assert sorted(event.site for event in [first, *rest]) == ["a", "b", "c"]
        assert all(isinstance(event, Arrival) for event in [first, *rest])


@every_wired
def test_what_some_sites_did_not_answer_stays_while_others_are_waited_for(make: MakeWired, tmp_path: Path) -> None:
    go = threading.Event()

    def slow(frame: Bytes) -> bytes:
        go.wait(PATIENCE)
        return b"at last"

    with make(tmp_path, {"slow": slow, "b": echo("b"), "c": echo("c")}, Settings()) as rig:
        everyone(rig)
        rig.hub.send("slow", b"1")
        for number in range(3):
            rig.hub.send("b", b"%d" % number)
            rig.hub.send("c", b"%d" % number)
            assert {event.site for event in rig.hub.events(PATIENCE, of=["b", "c"])} == {"b", "c"}
        go.set()
        rig.hub.send("b", b"3")
        found = list(rig.hub.events(PATIENCE))
        assert {event.site for event in found} == {"slow", "b"}
        assert Arrival("slow", b"at last") in found


@every_wired
def test_a_lost_connection_is_said_before_the_deadline(make: MakeWired, tmp_path: Path) -> None:
    begun = threading.Event()

    def hangs(frame: Bytes) -> bytes:
        begun.set()
        time.sleep(1.0)  # longer than a slow machine takes to stop the site
        return b"nobody hears this"

    with make(tmp_path, {"a": hangs, "b": echo("b")}, Settings(heartbeat=0.1)) as rig:
        everyone(rig)
        rig.hub.send("a", b"1")
        rig.hub.send("b", b"1")
        events = rig.hub.events(600.0)
        assert next(events) == Arrival("b", b"b had 1")
        assert begun.wait(PATIENCE)
        rig.stop("a")
        lost = next(events)
        assert isinstance(lost, Gone)
        assert lost.reason in {"connection lost 0 s ago", "connection lost 1 s ago"}
        assert list(events) == []


@every_wired
def test_a_site_that_comes_back_in_time_loses_nothing(make: MakeWired, tmp_path: Path) -> None:
    handled: list[bytes] = []

    def note(frame: Bytes) -> bytes:
        handled.append(bytes(frame))
        return b"noted"

    with make(tmp_path, {"a": note}, Settings(heartbeat=5.0)) as rig:
        rig.start("a")
        assert asked(rig.hub, {"a": b"1"}) == {"a": b"noted"}
        rig.stop("a")
        rig.hub.send("a", b"2")  # nobody is there
        rig.start("a")
        assert list(rig.hub.events(PATIENCE)) == [Arrival("a", b"noted")]
        assert handled == [b"1", b"2"]


@every_wired
def test_the_hub_may_lose_its_port_and_get_it_back(make: MakeWired, tmp_path: Path) -> None:
    go = threading.Event()
    handled: list[bytes] = []

    def wait(frame: Bytes) -> bytes:
        handled.append(bytes(frame))
        go.wait(PATIENCE)
        return b"waited"

    with make(tmp_path, {"a": wait, "b": echo("b")}, Settings(heartbeat=5.0)) as rig:
        everyone(rig)
        rig.hub.send("a", b"1")
        until(lambda: handled)
        rig.stop_server()
        until(lambda: not rig.connected("a"))
        rig.hub.send("b", b"1")
        go.set()  # the answer is ready while nobody is there to take it
        rig.start_server()
        found = list(rig.hub.events(PATIENCE))
        assert sorted(found, key=lambda event: event.site) == [Arrival("a", b"waited"), Arrival("b", b"b had 1")]
        assert handled == [b"1"]


@every_wired
def test_large_frames_pass_both_ways_through_files(make: MakeWired, tmp_path: Path) -> None:
    kinds: list[type] = []

    def back(frame: Bytes) -> bytes:
        kinds.append(type(frame))
        return bytes(frame)[::-1]

    with make(tmp_path, dict.fromkeys("ab", back), Settings()) as rig:
        everyone(rig)
        for site in "ab":
            rig.hub.send(site, LARGE)
        events = list(rig.hub.events(PATIENCE))
        assert len(events) == 2
        for event in events:
            assert isinstance(event, Arrival)
            assert isinstance(event.frame, memoryview)
            assert event.frame == LARGE[::-1]
        assert kinds == [memoryview, memoryview]
        assert sorted(len(frame) for _, _, frame in rig.left) == [len(LARGE)] * 2
    assert [path for path in (tmp_path / "spool").rglob("*") if path.is_file()] == []


@every_wired
def test_a_frame_over_the_limit_is_refused_and_the_link_lives(make: MakeWired, tmp_path: Path) -> None:
    def grows(frame: Bytes) -> bytes:
        return bytes(len(frame) * 1000)

    with make(tmp_path, dict.fromkeys("ab", grows), Settings(limit=2_000_000)) as rig:
        everyone(rig)
        with pytest.raises(ProtocolError, match="frames of at most 2000000 bytes; got 2000001"):
            rig.hub.send("a", bytes(2_000_001))
        found = asked(rig.hub, {"a": bytes(3000), "b": bytes(1000)})
        assert found == {"a": "its answer has 3000000 bytes, more than the limit of 2000000", "b": bytes(1_000_000)}
        assert asked(rig.hub, {"a": b"1"}) == {"a": bytes(1000)}


@every_wired
def test_a_site_that_fails_says_only_that(make: MakeWired, tmp_path: Path) -> None:
    def fails(frame: Bytes) -> bytes:
        if frame == b"1":
            raise ValueError("patient 42")
        return b"well again"

    with make(tmp_path, {"a": fails}, Settings()) as rig:
        everyone(rig)
        assert asked(rig.hub, {"a": b"1"}) == {"a": "it failed on the message"}
        assert asked(rig.hub, {"a": b"2"}) == {"a": b"well again"}


@every_wired
def test_twenty_sites(make: MakeWired, tmp_path: Path) -> None:
    sites = [f"site {number}" for number in range(20)]
    with make(tmp_path, {site: echo(site) for site in sites}, Settings(heartbeat=2.0)) as rig:
        everyone(rig)
        for number in range(3):
            frames = {site: b"%d" % number * 1000 for site in sites}
            assert len(asked(rig.hub, frames)) == 20
        assert all(
            isinstance(answer, bytes) for answer in asked(rig.hub, dict.fromkeys(sites, bytes(300_000))).values()
        )


@every_wired
@pytest.mark.parametrize("way", ["down", "up"])
def test_a_site_restarts_in_the_middle_of_a_message(make: MakeWired, way: str, tmp_path: Path) -> None:
    handled: list[int] = []

    def answer(frame: Bytes) -> bytes:
        handled.append(len(frame))
        return LARGE if way == "up" else b"small"

    with make(tmp_path, {"a": answer}, Settings(heartbeat=5.0)) as rig:
        rig.start("a")
        rig.hub.send("a", LARGE if way == "down" else b"small")
        until(lambda: rig.hub.sites()["a"].counts[way] > 2_000_000)
        before = rig.hub.sites()["a"].counts[way]
        rig.stop("a")
        rig.start("a")
        [event] = rig.hub.events(PATIENCE)
        assert isinstance(event, Arrival)
        assert len(event.frame) == (len(LARGE) if way == "up" else 5)
        if way == "up" and before < 15_000_000:
            # The site's inbox had the answer: it was not computed again, and the bytes that had come were not sent again.
            assert handled == [5]
            assert rig.hub.sites()["a"].counts["up"] < len(LARGE) + 6_000_000
