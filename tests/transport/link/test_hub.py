"""The hub, packet by packet: what it takes, what it refuses, and when it stops waiting."""

import hashlib
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.transport.link.peer import HEARTBEAT, Clock, Peer, Round, hub_of

from consilia.core.errors import ProtocolError
from consilia.core.update import Gone
from consilia.rounds.ports import Arrival
from consilia.transport.link.hub import Hub
from consilia.transport.link.packets import Beat, Begin, Done, Have, Hello, More, Packet, Reason, Refuse, to_bytes

LARGE = bytes(range(256)) * 8192  # 2 MB
ID = bytes(15) + b"1"
OTHER = bytes(15) + b"2"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def hub(tmp_path: Path, clock: Clock) -> Iterator[Hub]:
    with hub_of(tmp_path, clock) as made:
        yield made


def digest(frame: bytes) -> bytes:
    return hashlib.sha256(frame).digest()


def drained(peer: Peer) -> bytes:
    """Receive a message that comes in pieces, and confirm each."""
    found = b""
    while isinstance(packet := peer.heard(), Begin | More):
        found += packet.piece
        peer.say(Have(packet.id, packet.offset + len(packet.piece), 1 << 20))
    return found


def test_a_greeting_must_be_that_of_the_certificate(hub: Hub) -> None:
    peer = Peer(hub)
    with pytest.raises(ProtocolError, match=r"a greeting of a, whose certificate this is; got one of 'b'"):
        peer.greet(name="b")
    assert peer.heard() is None
    assert not hub.sites()["a"].connected


def test_another_wire_version_is_refused_with_both_named(hub: Hub) -> None:
    with pytest.raises(ProtocolError, match=r"wire version 1 \(consilia .*\); got wire version 0 \(consilia '0.0.9'\)"):
        Peer(hub).greet(wire=0, consilia="0.0.9")


@pytest.mark.parametrize("first", [Beat(), Done(ID), Begin(ID, ID, 1, digest(b"1"), 0, b"1")])
def test_a_stream_begins_with_a_greeting(hub: Hub, first: Packet) -> None:
    with pytest.raises(ProtocolError, match="begin with a greeting"):
        Peer(hub).say(first)


@pytest.mark.parametrize("holds", [[], {"zz": 1}, {"00": -1}, {"00": "1"}, {"00": True}, {"00": 1.5}])
def test_a_greeting_that_lies_about_its_holdings_is_none(hub: Hub, holds: object) -> None:
    with pytest.raises(ProtocolError, match="greeting"):
        Peer(hub).greet(holds=holds)  # type: ignore[arg-type]


def test_what_no_site_sends_ends_its_stream_alone(hub: Hub) -> None:
    good, bad = Peer(hub, "good"), Peer(hub, "bad")
    good.greet()
    bad.greet()
    hub.send("good", b"1")
    hub.send("bad", b"1")
    task = bad.task()
    for wrong in (
        b"", b"\1", b"\2\3" + bytes(6), b"\1\77" + bytes(30), b"\1\4" + bytes(30), to_bytes(Hello({"name": "bad"})),
        to_bytes(Done(ID)) + b"1", b"\1\1" + bytes(6) + b"[" * 100_000,
    ):  # fmt: skip
        with pytest.raises(ProtocolError, match="needs"):
            bad.session.receive(wrong)
    for begin in (
        Begin(ID, task.id, 10, digest(b""), 0, b"more than ten bytes"),
        Begin(ID, task.id, 10, digest(b""), 2**63, b"1"),
    ):
        with pytest.raises(ProtocolError, match="bytes"):
            bad.say(begin)
        hub.sites()
    bad.session.end()
    assert good.answers(good.task(), b"fine") == [Done(ID)]
    assert next(hub.events(1.0)) == Arrival("good", b"fine")


def test_a_site_that_talks_and_never_listens_is_cut_off(hub: Hub) -> None:
    peer = Peer(hub)
    peer.greet()
    begin = Begin(ID, OTHER, 1, digest(b"1"), 0, b"1")
    with pytest.raises(ProtocolError, match="an end that reads none"):
        peer.say(*[begin] * 20_000)


def test_a_gap_ends_the_stream(hub: Hub) -> None:
    peer = Peer(hub)
    peer.greet()
    hub.send("a", b"1")
    peer.say(Begin(ID, peer.task().id, 10, digest(b"0123456789"), 0, b"0123"))
    with pytest.raises(ProtocolError, match="bytes 5 to 10 of 10 after the first 4"):
        peer.say(More(ID, 5, b"56789"))


def test_pieces_that_come_again_are_left_out(hub: Hub) -> None:
    peer = Peer(hub)
    peer.greet()
    hub.send("a", b"1")
    begin = Begin(ID, peer.task().id, 10, digest(b"0123456789"), 0, b"0123")
    peer.say(begin, begin, More(ID, 2, b"234"), More(ID, 2, b"23456789"), More(ID, 4, b"456789"))
    assert list(hub.events(1.0)) == [Arrival("a", b"0123456789")]


def test_the_same_answer_again_is_ignored_and_another_one_counted(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer(hub)
    peer.greet()
    hub.send("a", b"1")
    task = peer.task()
    assert peer.answers(task, b"first") == [Done(ID)]
    assert peer.answers(task, b"first") == [Done(ID)]
    assert peer.answers(task, b"other", OTHER) == [Refuse(OTHER, Reason.OTHER_BYTES)]
    assert list(hub.events(1.0)) == [Arrival("a", b"first")]
    assert peer.answers(task, b"first") == [Done(ID)]
    counts = hub.sites()["a"].counts
    assert (counts["repeated"], counts["contradicting"], counts.get("late", 0)) == (2, 1, 0)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_of_two_answers_the_one_that_began_later_goes_on(hub: Hub) -> None:
    peer = Peer(hub)
    peer.greet()
    hub.send("a", b"1")
    task = peer.task()
    peer.say(Begin(OTHER, task.id, len(LARGE), digest(LARGE), 0, LARGE[:1000]))
    assert peer.answers(task, b"first") == [Refuse(OTHER, Reason.NOT_AWAITED), Done(ID)]
    peer.say(More(OTHER, 1000, LARGE[1000:2000]))  # was on its way
    assert list(hub.events(1.0)) == [Arrival("a", b"first")]


def test_an_answer_of_an_earlier_round_is_dropped_and_counted(hub: Hub, clock: Clock) -> None:
    peer = Peer(hub)
    peer.greet()
    hub.send("a", b"1")
    late = peer.task()
    round_ = Round(hub, 5.0)
    clock.now += 5.5
    peer.say(Beat())
    assert round_.end() == [Gone("a", "no answer before the deadline")]
    assert Refuse(late.id, Reason.NOT_AWAITED) in peer.all_heard()
    hub.send("a", b"2")
    task = peer.task()
    assert peer.answers(late, b"to the first") == [Refuse(ID, Reason.NOT_AWAITED)]
    assert peer.answers(task, b"to the second", OTHER) == [Done(OTHER)]
    assert list(hub.events(5.0)) == [Arrival("a", b"to the second")]
    assert hub.sites()["a"].counts["late"] == 1


def test_an_answer_that_nobody_took_yet_waits_for_who_listens_next(hub: Hub) -> None:
    a, b = Peer(hub, "a"), Peer(hub, "b")
    for peer in (a, b):
        peer.greet()
        hub.send(peer.name, b"1")
    tasks = [peer.task() for peer in (a, b)]
    a.answers(tasks[0], b"from a")
    events = hub.events(5.0)
    assert next(events) == Arrival("a", b"from a")
    b.answers(tasks[1], b"from b")
    events.close()  # type: ignore[attr-defined]
    assert list(hub.events(5.0)) == [Arrival("b", b"from b")]


def test_what_is_withdrawn_is_not_delivered_later(hub: Hub, clock: Clock) -> None:
    hub.send("a", b"1")
    peer = Peer(hub)
    round_ = Round(hub, 0.3)
    clock.now += 0.4
    assert round_.end() == [Gone("a", "no answer before the deadline")]
    peer.greet()
    assert peer.all_heard() == []


def test_a_task_is_sent_again_until_it_is_answered(hub: Hub) -> None:
    hub.send("a", b"the task")
    ids = set()
    for _ in range(5):
        peer = Peer(hub)
        peer.greet()
        task = peer.task()
        ids.add(task.id)
        assert task.piece == b"the task"
        peer.session.end()
    assert len(ids) == 1
    peer = Peer(hub)
    peer.greet(holds={task.id.hex(): 8})  # the site works on it
    assert peer.all_heard() == []
    assert peer.answers(task, b"done") == [Done(ID)]
    assert list(hub.events(1.0)) == [Arrival("a", b"done")]


def test_a_task_goes_on_where_the_site_has_it_up_to(hub: Hub) -> None:
    peer = Peer(hub)
    peer.greet()
    hub.send("a", LARGE)
    first = peer.heard()
    assert isinstance(first, Begin)
    peer.session.end()
    peer = Peer(hub)
    peer.greet(holds={first.id.hex(): len(first.piece), OTHER.hex(): 7})
    found = peer.heard()
    assert found == Refuse(OTHER, Reason.NOT_AWAITED)  # of a round that is over
    assert bytes(first.piece) + drained(peer) == LARGE


def test_an_answer_goes_on_where_the_hub_has_it_up_to(hub: Hub) -> None:
    peer = Peer(hub)
    peer.greet()
    hub.send("a", b"1")
    task = peer.task()
    peer.say(Begin(ID, task.id, len(LARGE), digest(LARGE), 0, LARGE[:1_000_000]))
    peer.session.end()
    peer = Peer(hub)
    assert peer.greet(holds={task.id.hex(): 1}).body["holds"] == {ID.hex(): 1_000_000}
    peer.say(Begin(ID, task.id, len(LARGE), digest(LARGE), 1_000_000, LARGE[1_000_000:1_500_000]))
    peer.say(More(ID, 1_500_000, LARGE[1_500_000:]))
    assert list(hub.events(1.0)) == [Arrival("a", LARGE)]


def test_an_answer_cannot_go_on_as_another_one(hub: Hub) -> None:
    peer = Peer(hub)
    peer.greet()
    hub.send("a", b"1")
    task = peer.task()
    peer.say(Begin(ID, task.id, len(LARGE), digest(LARGE), 0, LARGE[:1000]))
    with pytest.raises(ProtocolError, match="two messages of one id"):
        peer.say(Begin(ID, task.id, len(LARGE), digest(b"other"), 1000, LARGE[1000:2000]))


def test_an_answer_whose_beginning_is_gone_begins_again(hub: Hub) -> None:
    peer = Peer(hub)
    peer.greet()
    hub.send("a", b"1")
    peer.say(Begin(ID, peer.task().id, len(LARGE), digest(LARGE), 1000, LARGE[1000:2000]))
    assert peer.all_heard() == [Refuse(ID, Reason.DAMAGED)]


def test_damaged_bytes_are_not_handed_over(hub: Hub) -> None:
    peer = Peer(hub)
    peer.greet()
    hub.send("a", b"1")
    task = peer.task()
    peer.say(Begin(ID, task.id, 4, digest(b"good"), 0, b"evil"))
    assert peer.all_heard() == [Refuse(ID, Reason.DAMAGED)]
    assert peer.answers(task, b"good") == [Done(ID)]
    assert list(hub.events(1.0)) == [Arrival("a", b"good")]


def test_a_task_that_comes_damaged_is_sent_again_three_times_in_all(hub: Hub) -> None:
    peer = Peer(hub)
    peer.greet()
    hub.send("a", b"task")
    for _ in range(3):
        task = peer.heard()
        assert isinstance(task, Begin)
        assert task.piece == b"task"
        peer.say(Refuse(task.id, Reason.DAMAGED))
    assert peer.all_heard() == []
    assert list(hub.events(1.0)) == [Gone("a", "messages were damaged on their way, several times over")]


def test_the_newer_stream_replaces_the_older_once_it_has_greeted(hub: Hub) -> None:
    old = Peer(hub)
    old.greet()
    hub.send("a", b"1")
    task = old.task()
    new = Peer(hub)
    with pytest.raises(ProtocolError):
        new.greet(name="somebody else")
    assert old.closed == []
    new.greet()
    assert old.closed == ["the same site has opened a newer stream"]
    assert old.heard() is None
    old.say(Begin(OTHER, task.id, 3, digest(b"old"), 0, b"old"))  # was on its way
    old.session.end()
    assert hub.sites()["a"].connected
    assert new.task() == task
    assert new.answers(task, b"new") == [Done(ID)]
    assert list(hub.events(1.0)) == [Arrival("a", b"new")]


def test_a_silent_stream_is_ended_and_its_site_is_gone(hub: Hub, clock: Clock) -> None:
    peer = Peer(hub)
    peer.greet()
    hub.send("a", b"1")
    round_ = Round(hub, 1e6)
    for _ in range(10):  # signs of life keep it
        clock.now += 2 * HEARTBEAT
        peer.say(Beat())
    time.sleep(HEARTBEAT)
    assert not round_.over()
    assert not peer.closed
    for _ in range(40):  # less at a time than what looks like a process that was stopped
        if not round_.over():
            time.sleep(HEARTBEAT / 3)
            clock.now += HEARTBEAT / 2
    [event] = round_.end()
    assert isinstance(event, Gone)
    assert "connection lost" in event.reason
    assert len(peer.closed) == 1


def test_a_hub_that_was_stopped_for_a_while_does_not_blame_the_sites(hub: Hub, clock: Clock) -> None:
    peer = Peer(hub)
    peer.greet()
    time.sleep(HEARTBEAT / 2)
    clock.now += 30.0  # SIGSTOP, then SIGCONT
    time.sleep(HEARTBEAT)
    assert peer.closed == []
    assert hub.sites()["a"].connected
    assert hub.sites()["a"].heard < 3 * HEARTBEAT


def test_heartbeats_go_out_when_there_is_nothing_to_say(hub: Hub, clock: Clock) -> None:
    peer = Peer(hub)
    peer.greet()
    assert peer.all_heard() == []
    clock.now += HEARTBEAT
    assert peer.all_heard() == [Beat()]
    assert peer.all_heard() == []


@pytest.mark.parametrize("rate", [0.5, 2.0])
def test_an_answer_on_its_way_at_the_deadline_is_waited_for_if_it_is_fast_enough(
    hub: Hub, clock: Clock, rate: float
) -> None:
    # The floor is 1000 bytes a second, so these 100,000 bytes may take 100 s.
    peer, frame = Peer(hub), bytes(100_000)
    peer.greet()
    hub.send("a", b"1")
    task = peer.task()
    round_ = Round(hub, 10.0)
    begun, came = clock.now, 1000
    peer.say(Begin(ID, task.id, len(frame), digest(frame), 0, frame[:1000]))
    while came < len(frame) and not round_.over():
        step = HEARTBEAT * 1.5
        clock.now += step
        more = min(int(rate * 1000 * step), len(frame) - came)
        peer.say(More(ID, came, frame[came : came + more]))
        came += more
        if clock.now - begun > 10.0:
            time.sleep(0.001)
    if rate > 1:
        assert round_.end() == [Arrival("a", frame)]
        assert clock.now - begun > 40.0
    else:
        assert round_.end() == [Gone("a", "no answer before the deadline")]
        assert came < 20_000


def test_an_answer_that_stalls_after_the_deadline_is_given_up(hub: Hub, clock: Clock) -> None:
    peer = Peer(hub)
    peer.greet()
    hub.send("a", b"1")
    frame = bytes(100_000)
    peer.say(Begin(ID, peer.task().id, len(frame), digest(frame), 0, frame[:50_000]))
    round_ = Round(hub, 10.0)
    for _ in range(120):
        clock.now += 0.5
        peer.say(Beat())
        time.sleep(0.002)
    assert round_.end() == [Gone("a", "no answer before the deadline")]


def test_a_refusal_says_why_the_site_is_gone(hub: Hub) -> None:
    peer = Peer(hub)
    peer.greet()
    for reason, text in ((Reason.NO_SPACE, "no disk space"), (Reason.TOO_LARGE, "larger than it takes"),
                         (Reason.FAILED, "failed"), (Reason.OTHER_BYTES, "other bytes")):  # fmt: skip
        hub.send("a", b"1")
        peer.say(Refuse(peer.task().id, reason))
        [event] = hub.events(1.0)
        assert isinstance(event, Gone)
        assert text in event.reason


def test_a_closed_hub_lets_nobody_wait(tmp_path: Path, clock: Clock) -> None:
    with hub_of(tmp_path, clock) as hub:
        peer = Peer(hub)
        peer.greet()
        hub.send("a", b"1")
        round_ = Round(hub, 1e6)
        hub.close()
        assert round_.end() == [Gone("a", "the coordinator is stopping")]
        assert peer.closed == ["the coordinator is stopping"]


def test_who_comes_and_goes_is_told(tmp_path: Path, clock: Clock) -> None:
    seen: list[bool] = []
    made = Hub(tmp_path / "spool", heartbeat=HEARTBEAT, upload_floor=1.0, clock=clock,
               on_change=lambda: seen.append(made.sites()["a"].connected))  # fmt: skip
    peer = Peer(made)
    peer.greet()
    peer.session.end()
    assert seen == [True, False]
    made.close()
