"""Requests and answers that nobody in between can change, repeat or send elsewhere."""

from dataclasses import replace
from typing import Any

import pytest

from consilia.core.errors import TransportError
from consilia.core.randomness import SecretRng
from consilia.crypto.signing import SigningKey
from consilia.transport.longpoll.signing import MOST_SESSIONS, NONCE, Request, Session, Sessions

RNG = SecretRng(bytes(32))
ALICE, BOB, HOME, OTHER = (SigningKey.draw(RNG) for _ in range(4))
MEMBERS = {"alice": ALICE.public, "bob": BOB.public}


def request(**changes: Any) -> Request:
    first = Request("POST", "/packets?x=1", bytes(NONCE), 1, b"body", HOME.public)
    return replace(first, **changes)


CHANGES: list[dict[str, Any]] = [
    {"method": "GET"}, {"path": "/packets?x=2"}, {"session": b"\1" * NONCE}, {"number": 2}, {"body": b"bodY"},
    {"coordinator": OTHER.public},
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_every_part_of_a_request_is_signed(change: dict[str, Any]) -> None:
    signature = request().sign(ALICE)
    assert request().signed_by(ALICE.public, signature)
    assert not request(**change).signed_by(ALICE.public, signature)
    assert not request().signed_by(BOB.public, signature)
    answer = request().answer(200, b"yes", HOME)
    assert request().answered_by(HOME.public, 200, b"yes", answer)
    assert not request(**change).answered_by(HOME.public, 200, b"yes", answer)


def test_every_part_of_an_answer_is_signed() -> None:
    answer = request().answer(200, b"yes", HOME)
    assert not request().answered_by(HOME.public, 200, b"no", answer)
    assert not request().answered_by(HOME.public, 404, b"yes", answer)
    assert not request().answered_by(OTHER.public, 200, b"yes", answer)
    # A request's signature is never taken for an answer's.
    assert not request().answered_by(ALICE.public, 200, b"yes", request().sign(ALICE))


class Door:
    """Sessions at a coordinator, and which ended."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self.members = dict(MEMBERS)
        self.sessions = Sessions(
            self.members.get, coordinator=HOME.public, draw=RNG.token, closed=lambda one: self.ended.append(one.member)
        )

    def open(self, member: str = "alice", key: SigningKey = ALICE, now: float = 0.0, **changes: Any) -> Session:
        asked = request(**{"session": RNG.token(NONCE), "number": 0, **changes})
        return self.sessions.open(member, asked, asked.sign(key), now)

    def send(self, session: Session, number: int, key: SigningKey = ALICE, now: float = 0.0, **changes: Any) -> Session:
        asked = request(session=session.nonce, number=number, **changes)
        return self.sessions.admit(asked, asked.sign(key), now)


def test_a_request_passes_once() -> None:
    door = Door()
    session = door.open()
    assert door.send(session, 1) is session
    for number in (1, 0):
        with pytest.raises(TransportError, match="a request that was sent before"):
            door.send(session, number)
    door.send(session, 1, method="GET")  # the two methods are two streams of their own
    door.send(session, 7)
    with pytest.raises(TransportError, match="sent before"):
        door.send(session, 6)


def test_only_the_member_of_the_session_gets_in() -> None:
    door = Door()
    session = door.open()
    with pytest.raises(TransportError, match="the member's signature over exactly this request"):
        door.send(session, 1, key=BOB)
    with pytest.raises(TransportError, match="the member's signature"):
        door.open("alice", BOB)
    with pytest.raises(TransportError, match="a member of the consortium"):
        door.open("mallory", BOB)
    with pytest.raises(TransportError, match="the member's signature"):
        door.send(session, 1, coordinator=OTHER.public)
    with pytest.raises(TransportError, match="a nonce and number 0"):
        door.open(session=b"short")
    with pytest.raises(TransportError, match="a nonce and number 0"):
        door.open(number=1)


def test_who_is_thrown_out_is_out_at_the_next_request() -> None:
    door = Door()
    session = door.open()
    door.send(session, 1)
    del door.members["alice"]
    with pytest.raises(TransportError, match="a member of the consortium"):
        door.send(session, 2)


def test_a_recorded_opening_or_request_does_no_harm() -> None:
    door = Door()
    recorded = request(session=RNG.token(NONCE), number=0)
    session = door.sessions.open("alice", recorded, recorded.sign(ALICE), 0.0)
    door.send(session, 1)
    for _ in range(3 * MOST_SESSIONS):
        door.sessions.open("alice", recorded, recorded.sign(ALICE), 0.0)
    assert len(door.ended) == 3 * MOST_SESSIONS - MOST_SESSIONS  # only ones that nobody used
    door.send(session, 2)
    old = request(session=session.nonce, number=3)
    newer = door.open()
    door.send(session, 3)  # until the new one is used
    door.send(newer, 1)
    with pytest.raises(TransportError, match="over or was never opened"):
        door.sessions.admit(old, old.sign(ALICE), 0.0)


def test_sessions_end_by_silence_and_all_at_once() -> None:
    door = Door()
    quiet, busy = door.open(), door.open("bob", BOB)
    door.send(busy, 1, key=BOB, now=5.0)
    door.sessions.expire(1.0)
    assert door.ended == ["alice"]
    with pytest.raises(TransportError, match="over or was never opened"):
        door.send(quiet, 1)
    door.sessions.close(quiet)
    door.sessions.close_all()
    assert door.ended == ["alice", "bob"]
