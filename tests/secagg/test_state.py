"""A site's state: stored and read back at every stage, the same bytes for the same event, nothing after another one."""

from typing import Any

import numpy as np
import pytest
from tests.secagg.consortium import Run, identities, other, session, starts, vector

from consilia.core.errors import StoreError
from consilia.secagg import client
from consilia.secagg.messages import Adverts, Begin, Inbox, Refused, Reveal, Survivors, Votes
from consilia.secagg.state import Contribution, State

A = "site-000"


def events(run: Run) -> list[client.Event]:
    found: list[client.Event] = []
    for site, message in run.heard:
        if site == A:
            found.append(message)
            if isinstance(message, Inbox):
                found.append(Contribution(vector(A, run.of)))
    return found


@pytest.fixture(scope="module")
def played() -> Run:
    run = Run(session(5), {"masked": ["site-004"]})
    run.play()
    return run


def test_the_same_event_gives_the_same_bytes_at_once_later_and_after_a_restart(played: Run) -> None:
    state, said = starts(played.of)[A], {}
    for event in events(played):
        state, answers = client.step(state, event)
        said[type(event)] = [bytes(answer.to_bytes()) for answer in answers]
        state = State.from_bytes(state.to_bytes(), played.of, identities(5)[0])
        for earlier in events(played)[: len(said)]:
            same, answers = client.step(state, earlier)
            assert same is state
            assert [bytes(answer.to_bytes()) for answer in answers] == said[type(earlier)]
    assert state.reason == ""
    assert [len(answers) for answers in said.values()] == [1, 1, 0, 1, 1, 1]


@pytest.mark.parametrize("place", range(6))
def test_another_event_in_the_place_of_one_ends_the_session(played: Run, place: int) -> None:
    wrong: list[client.Event] = [
        Begin(b"t" * 16), Adverts({}), Inbox({}), Contribution(vector(A, played.of, salt=1)), Survivors(()), Votes({}),
    ]  # fmt: skip
    state, true = starts(played.of)[A], events(played)
    for event in true[: place + 1]:
        state, _ = client.step(state, event)
    state, answers = client.step(state, wrong[place])
    assert [type(answer) for answer in answers] == [Refused]
    state = State.from_bytes(state.to_bytes(), played.of, identities(5)[0])
    assert state.reason
    for event in true:
        same, answers = client.step(state, event)
        assert same is state
        assert answers == (Refused(state.reason),)


def test_masked_says_when_no_other_session_may_begin(played: Run) -> None:
    state, seen = starts(played.of)[A], []
    for event in events(played):
        state, _ = client.step(state, event)
        seen.append(state.masked)
    assert seen == [False, False, False, True, True, True]


def test_a_state_of_another_session_or_site_or_a_damaged_one_is_not_read(played: Run) -> None:
    state = starts(played.of)[A]
    state, _ = client.step(state, Begin(played.of.session_id))
    raw, mine = state.to_bytes(), identities(5)[0]
    bad = [
        (raw, other(played.of, round=8), mine), (raw, played.of, identities(5)[1]), (raw[:-1], played.of, mine),
        (raw + bytes(4 * 7), played.of, mine), (b"", played.of, mine), (raw + bytes(3), played.of, mine),
    ]  # fmt: skip
    for damaged, of, identity in bad:
        with pytest.raises(StoreError, match="the bytes of this session at this site"):
            State.from_bytes(damaged, of, identity)


@pytest.mark.parametrize("words", [
    np.zeros(4, "<u4"), np.zeros(3, "<u8"), np.zeros(3, "<i4"), np.zeros((3, 1), "<u4"), np.zeros(6, "<u4")[::2],
    np.zeros(3, "<f4"),
])  # fmt: skip
def test_what_is_no_vector_of_the_session(played: Run, words: Any) -> None:
    state = starts(played.of)[A]
    for event in events(played)[:3]:
        state, _ = client.step(state, event)
    _, answers = client.step(state, Contribution(words))
    assert "needs 3 words of uint32" in answers[0].reason  # type: ignore[union-attr]


def test_fresh_randomness_makes_fresh_keys(played: Run) -> None:
    keys = {starts(played.of, i)[A].keyring.unsigned().mask for i in range(5)}
    assert len(keys) == 5


def test_no_text_of_a_state_shows_a_secret(played: Run) -> None:
    state = starts(played.of)[A]
    for event in events(played):
        state, _ = client.step(state, event)
        text = f"{state!r}{state}{state.keyring!r}{vars(state).keys()}"
        for secret in (state.seed, state.identity.signing.seed, state.identity.sealing.private):
            assert secret.hex() not in text
            assert repr(secret)[2:-1] not in text
    assert "Pair(...)" in repr(state.keyring.pairs(2, played.of.cohort, b""))


def test_no_text_of_the_coordinators_state_shows_a_share(played: Run) -> None:
    shares = [
        share for site, message in played.said if isinstance(message, Reveal) for share in message.shares.values()
    ]
    assert len(shares) == 4 * 5
    text = f"{played.server}{[message for _, message in played.said if isinstance(message, Reveal)]}"
    assert not [share for share in shares if repr(share) in text]
