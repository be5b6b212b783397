"""Messages that come late, twice, changed, in another order or from another time: what counts, counts once."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.faults.peer import Peer, Reply
from tests.faults.rig import Rig, dropped, in_process, step_of
from tests.promises.fleet import Case
from tests.transport.link.waiting import until

from consilia.core.update import ProtocolMessage, Release
from consilia.core.wire import VERSION, decode, encode
from consilia.transport.faults import Fault, Faulty

CASE = Case("clear", reproducible=True, deadline=6.0)
MASKS = Case("masks", deadline=6.0)
BAD = "Bergen"
Make = Callable[..., Rig]


def others(rig: Rig) -> list[str]:
    return [name for name in rig.case.names if name != BAD]


def is_train(frame: bytes, number: int) -> bool:
    task = decode(frame, who="test")
    assert isinstance(task, ProtocolMessage)
    return (task.kind, task.round) == ("train", number)


def spoiled(answer: bytes) -> bytes:
    item = decode(answer, who="test")
    assert isinstance(item, Release)
    return encode(replace(item, payload=np.full(len(item.payload) // 4, 9.0, "<f4").tobytes()))


def with_peer(rig: Rig, behave: Callable[[bytes, bytes, bytes], Reply]) -> list[dict[str, Any]]:
    rig.start(*others(rig))
    with Peer(rig, BAD, behave):
        until(lambda: rig.connected(BAD))
        return rig.run()


def counts(rig: Rig) -> dict[str, int]:
    return rig.hub.sites()[BAD].counts


def test_same_upload_twice(make: Make) -> None:
    rig = make(CASE)
    records = with_peer(rig, lambda id, frame, answer: [(id, answer), (id, answer)])
    assert dropped(records) == [set(), set(), set()]
    assert counts(rig)["repeated"] >= 3
    assert np.array_equal(rig.model, in_process(CASE, rig.folder / "again", rig.shelf))


def test_same_upload_with_another_body(make: Make) -> None:
    rig = make(CASE)

    def behave(id: bytes, frame: bytes, answer: bytes) -> Reply:
        return [(id, answer), (id, spoiled(answer))] if is_train(frame, 2) else [(id, answer)]

    records = with_peer(rig, behave)
    assert dropped(records) == [set(), set(), set()]
    assert counts(rig)["contradicting"] == 1
    assert np.array_equal(rig.model, in_process(CASE, rig.folder / "again", rig.shelf))  # the first one counts


def test_late_by_a_round(make: Make) -> None:
    """Round 2's answer comes in round 3, once under its own message's id and once under that of round 3's."""
    rig = make(Case("clear", deadline=1.5))
    kept: list[tuple[bytes, bytes]] = []

    def behave(id: bytes, frame: bytes, answer: bytes) -> Reply:
        if is_train(frame, 2):
            kept.append((id, answer))
            return []
        if is_train(frame, 3):
            (old, late) = kept[0]
            return [(old, late), (id, late)]
        return [(id, answer)]

    records = with_peer(rig, behave)
    assert dropped(records) == [set(), {BAD}, {BAD}]
    assert records[1]["dropped"][BAD] == "no answer before the deadline"
    assert records[2]["dropped"][BAD] == "answered round 2 in round 3 (late or replayed)"
    assert counts(rig)["late"] == 1


def test_reordered(make: Make) -> None:
    """Round 2's training and its scoring change places on their way up."""
    rig = make(CASE).start()
    schedule = {("up", BAD, 3): Fault("reorder")}  # training and scoring of round 1 are its first two
    rig.transport = Faulty(rig.hub, lambda *frame: schedule.get(frame), time.monotonic, time.sleep)
    records = rig.run()
    assert dropped(records) == [set(), {BAD}, set()]


def test_replay_of_an_old_signed_message(make: Make) -> None:
    """What it signed for round 1's sum says nothing in round 2's."""
    rig = make(MASKS)
    old: dict[str, bytes] = {}

    def behave(id: bytes, frame: bytes, answer: bytes) -> Reply:
        task = decode(frame, who="test")
        assert isinstance(task, ProtocolMessage)
        if task.body.get("purpose", "update") != "update":
            return [(id, answer)]
        if task.round == 1:
            old[step_of(task)] = answer
        return [(id, old["begin"] if (step_of(task), task.round) == ("begin", 2) else answer)]

    records = with_peer(rig, behave)
    assert dropped(records) == [set(), {BAD}, set()]
    assert [record["status"] for record in records] == ["counted"] * 3


def test_replay_with_its_round_rewritten(make: Make) -> None:
    """As above, in a frame that says that it is of this round: the signature is over the session."""
    rig = make(MASKS)
    old: dict[str, ProtocolMessage] = {}

    def behave(id: bytes, frame: bytes, answer: bytes) -> Reply:
        task, item = decode(frame, who="test"), decode(answer, who="test")
        assert isinstance(task, ProtocolMessage)
        if task.body.get("purpose") == "update" and step_of(task) == "begin":
            assert isinstance(item, ProtocolMessage)
            if task.round == 1:
                old["advert"] = item
            if task.round == 2:
                return [(id, encode(replace(item, payload=old["advert"].payload)))]
        return [(id, answer)]

    records = with_peer(rig, behave)
    assert dropped(records) == [set(), {BAD}, set()]
    assert [record["status"] for record in records] == ["counted"] * 3


def test_two_clients_with_one_identity(make: Make) -> None:
    """A copy of a member's keys at work beside it: each throws the other out; nobody counts twice, and nobody else pays."""
    rig = make(Case("clear", rounds=4, deadline=3.0))
    rig.start(*others(rig))
    answered: list[bytes] = []

    def behave(id: bytes, frame: bytes, answer: bytes) -> Reply:
        answered.append(id)
        return [(id, answer)]

    with Peer(rig, BAD, behave) as copy:
        until(lambda: rig.connected(BAD))
        site, store = copy.site, copy.store
        rig.fleet.open_site = lambda name: (site, store)  # type: ignore[method-assign]
        rig.start(BAD)
        records = rig.run()
        assert all(names <= {BAD} for names in dropped(records))
        until(lambda: copy.ended)
        assert "the same site has opened a newer stream" in copy.ended


@pytest.mark.parametrize("wire", [VERSION - 1, VERSION + 1])
def test_client_of_another_version(make: Make, wire: int) -> None:
    rig = make(Case("clear", rounds=1, deadline=2.0))
    rig.start(*others(rig))
    with Peer(rig, BAD, lambda id, frame, answer: [(id, answer)], wire=wire) as peer:
        until(lambda: peer.ended)
        assert f"needs wire version {VERSION}" in peer.ended
        assert f"got wire version {wire} (consilia '0.0.1')" in peer.ended
        records = rig.run()
    assert dropped(records) == [{BAD}]
    assert records[0]["status"] == "counted"
