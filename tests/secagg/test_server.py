"""A site that breaks the rules costs its own turn and nobody else's; memory stays flat; the sum is only ever of enough sites."""

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.secagg.consortium import Run, identities, refusals, rng, session, starts, vector

from consilia.crypto.keys import ExchangeKey
from consilia.crypto.sealing import lock
from consilia.secagg import client, server
from consilia.secagg.keyring import Keyring, Pair
from consilia.secagg.messages import Advert, Adverts, Begin, FromSite, Masked, Refused, Reveal, Shares, ToSite, Vote
from consilia.secagg.params import Session
from consilia.secagg.rules import advert_text
from consilia.secagg.state import Contribution

A, BAD = "site-000", "site-002"


def flipped(raw: bytes, place: int = 0) -> bytes:
    return raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :]


def resigned(advert: Advert, of: Session) -> Advert:
    return replace(advert, signature=identities(7)[2].signing.sign(advert_text(of, BAD, advert)))


Change = Callable[[Any, Session], FromSite]
FAULTS: dict[str, tuple[type, Change, str]] = {
    "advert not signed": (Advert, lambda m, _: replace(m, signature=bytes(64)), "an advert it signed"),
    "advert of another site": (Advert, lambda m, of: client.step(starts(of)[A], Begin(of.session_id))[1][0], "it signed"),
    "a key of low order": (Advert, lambda m, of: resigned(replace(m, mask=bytes(32)), of), "full order"),
    "a short key": (Advert, lambda m, of: resigned(replace(m, channel=b"k"), of), "full order"),
    "one key for both": (Advert, lambda m, of: resigned(replace(m, mask=m.channel), of), "two keys of its own"),
    "a short commitment": (Advert, lambda m, of: resigned(replace(m, commitment=b"c"), of), "a commitment of 32 bytes"),
    "no shares": (Shares, lambda m, _: Shares({}), "an envelope for each of 7 holders"),
    "a share too few": (Shares, lambda m, _: Shares(dict(list(m.envelopes.items())[1:])), "an envelope for each"),
    "short envelopes": (Shares, lambda m, _: Shares({k: v[:-1] for k, v in m.envelopes.items()}), "an envelope for each"),
    "a short vector": (Masked, lambda m, _: Masked(m.payload[:-4]), "3 elements of a ring of 32 bits"),
    "a long vector": (Masked, lambda m, _: Masked(bytes(m.payload) + bytes(4)), "3 elements"),
    "no vector": (Masked, lambda m, _: Masked(b""), "3 elements"),
    "a forged vote": (Vote, lambda m, _: Vote(flipped(m.signature)), "a vote for the survivors it was told"),
    "no vote": (Vote, lambda m, _: Vote(b""), "a vote for the survivors it was told"),
    "a wrong share": (Reveal, lambda m, _: Reveal({**m.shares, A: flipped(m.shares[A])}), f"the share of {A}"),
    "a share of nothing": (Reveal, lambda m, _: Reveal({**m.shares, A: b""}), f"the share of {A}"),
    "no shares revealed": (Reveal, lambda m, _: Reveal({}), "a share of each of 7 sites"),
    "it refuses": (Vote, lambda m, _: Refused("I would rather not"), "I would rather not"),
}  # fmt: skip


class Faulty(Run):
    """A run in which one site's message of one stage is replaced."""

    fault: tuple[type, Change, str]

    def deliver(self, site: str, message: ToSite) -> list[FromSite]:
        kind, change, _ = self.fault
        return [
            change(m, self.of) if site == BAD and isinstance(m, kind) else m for m in super().deliver(site, message)
        ]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_costs_only_its_site(name: str) -> None:
    run = Faulty(session(7, adversary="passive"))
    run.fault = FAULTS[name]
    end = run.play()
    assert isinstance(end, server.Done), end
    assert set(end.dropped) == {BAD}
    assert run.fault[2] in end.dropped[BAD].reason
    stage = {Advert: "advert", Shares: "shares", Masked: "masked", Vote: "vote", Reveal: "reveal"}[run.fault[0]]
    assert end.dropped[BAD].stage == stage
    counted = stage in ("vote", "reveal")  # its vector was in the sum by then
    assert end.survivors == tuple(site for site in run.of.cohort if counted or site != BAD)
    np.testing.assert_array_equal(run.of.ring.center(end.total), run.expected(end.survivors))


def test_keys_that_another_site_has_already() -> None:
    of = session(7)
    state, _ = server.start(of)
    first = client.step(starts(of)[A], Begin(of.session_id))[1][0]
    assert isinstance(first, Advert)
    state, _ = server.step(state, server.Received(A, first))
    state, _ = server.step(state, server.Received(BAD, resigned(first, of)))
    assert "two keys of its own" in state.dropped[BAD].reason
    assert A in state.adverts


def test_shares_that_do_not_open_make_their_readers_refuse_and_say_whose_they_are() -> None:
    run = Faulty(session(7, adversary="passive"))
    run.fault = (
        Shares,
        lambda m, _: Shares({k: v if k == BAD else flipped(v, 100) for k, v in m.envelopes.items()}),
        "",
    )
    end = run.play()
    assert isinstance(end, server.Abort)
    assert all(f"the envelope from {BAD}" in drop.reason for site, drop in end.dropped.items() if site != BAD)


class Liar(Run):
    """A run in which one site shares other secrets than those it advertised, and commits to these shares."""

    def lie(self, ring: Keyring) -> None:
        ring._own = rng("another secret").token(32)

    def deliver(self, site: str, message: ToSite) -> list[FromSite]:
        answers = super().deliver(site, message)
        if site != BAD or not isinstance(message, Adverts):
            return answers
        state = self.states[BAD]
        ring = Keyring(self.of, BAD, state.seed)
        self.lie(ring)
        pairs = ring.pairs(self.of.threshold, self.of.cohort, state.adverts_digest)
        return [Shares({n: self.envelope(ring, n, message.adverts[n], pairs[n]) for n in self.of.cohort})]

    def envelope(self, ring: Keyring, holder: str, advert: Advert, pair: Pair) -> bytes:
        return ring.envelope(holder, advert, pair, self.states[BAD].bound)


class LiarAboutItsKey(Liar):
    def lie(self, ring: Keyring) -> None:
        ring._mask = ExchangeKey.draw(rng("another key"))


class LiarAboutItsCommitments(Liar):
    def envelope(self, ring: Keyring, holder: str, advert: Advert, pair: Pair) -> bytes:
        head = bytes(64)
        if holder == BAD:
            return head
        key = ring._lock_key(holder, advert, BAD, holder, self.states[BAD].bound)
        return head + lock(key, pair.own_mask + pair.mask_key, head)


def test_a_seed_that_is_not_the_advertised_one_is_found_and_named() -> None:
    end = Liar(session(7, adversary="passive")).play()
    assert isinstance(end, server.Abort)
    assert end.reason.startswith(f"the secret of {BAD} needs shares of what it advertised")


def test_a_mask_key_that_is_not_the_advertised_one_is_found_and_named() -> None:
    end = LiarAboutItsKey(session(7, adversary="passive"), {"masked": [BAD]}).play()
    assert isinstance(end, server.Abort)
    assert end.reason.startswith(f"the secret of {BAD} needs shares of what it advertised")


def test_shares_that_are_not_the_committed_ones_are_found_by_their_reader() -> None:
    """Or the reader would be dropped for what that site did, once it gives the share away."""
    run = LiarAboutItsCommitments(session(7, adversary="passive"))
    run.play()
    assert len(refusals(run)) == 6
    assert all("shares that its commitments are to" in reason for reason in refusals(run).values())


def test_what_comes_out_of_turn_twice_or_from_nobody_changes_nothing() -> None:
    of = session(5)
    run = Run(of)
    assert isinstance(run.play(), server.Done)
    said = run.said
    state, _ = server.start(of)
    for site, message in said:
        for other in (message, *(m for _, m in said if m.STAGE != message.STAGE)):
            if not isinstance(other, type(message)):
                state, outputs = server.step(state, server.Received(site, other))
                assert not any(isinstance(o, server.Done) for o in outputs)
        state, first = server.step(state, server.Received(site, message))
        state, second = server.step(state, server.Received(site, message))
        assert second == []
        state, nothing = server.step(state, server.Received("nobody", message))
        assert nothing == []
        if first and isinstance(first[-1], server.Done):
            np.testing.assert_array_equal(of.ring.center(first[-1].total), run.expected(of.cohort))
            return
    raise AssertionError("no end")


def test_a_lost_site_is_not_waited_for() -> None:
    of = session(4, adversary="passive")
    state, outputs = server.start(of)
    for site in of.cohort[1:]:
        message = client.step(starts(of)[site], Begin(of.session_id))[1][0]
        state, outputs = server.step(state, server.Received(site, message))
        assert outputs == []
    state, outputs = server.step(state, server.Lost(A, "its connection is gone"))
    assert [type(output.message) for output in outputs if isinstance(output, server.Send)] == [Adverts] * 3
    assert state.dropped == {A: server.Drop("advert", "its connection is gone")}


def test_a_site_lost_between_two_stages_is_not_asked_again() -> None:
    of = session(5, adversary="passive")
    state, _ = server.start(of)
    for number, site in enumerate(of.cohort):
        if number == 3:
            state, _ = server.step(state, server.Lost(A, "gone"))
        message = client.step(starts(of)[site], Begin(of.session_id))[1][0]
        state, outputs = server.step(state, server.Received(site, message))
    assert sorted(output.site for output in outputs if isinstance(output, server.Send)) == list(of.cohort[1:])


def test_memory_does_not_grow_with_the_number_of_vectors() -> None:
    of = session(12, dim=1 << 18)  # a vector is a megabyte
    state, outputs = server.start(of)
    states, queue, peak = starts(of), list(outputs), 0
    masked: list[tuple[str, FromSite]] = []
    while queue:
        output = queue.pop(0)
        assert isinstance(output, server.Send)
        events: list[client.Event] = [output.message]
        if output.message.STAGE == "inbox":
            events.append(Contribution(vector(output.site, of)))
        for event in events:
            states[output.site], answers = client.step(states[output.site], event)
            for answer in answers:
                if isinstance(answer, Masked):
                    masked.append((output.site, answer))
                else:
                    state, more = server.step(state, server.Received(output.site, answer))
                    queue += more
    assert len(masked) == 12
    tracemalloc.start()
    for site, answer in masked:
        state, _ = server.step(state, server.Received(site, answer))
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1 << 18  # not one vector more than before
    assert peak < 1 << 20


def test_an_upload_is_no_larger_than_float32() -> None:
    run = Run(session(4, dim=100_000))
    run.play()
    bytes_up = sum(len(message.to_bytes()) for site, message in run.said if site == A)
    assert bytes_up <= 1.01 * 4 * 100_000
