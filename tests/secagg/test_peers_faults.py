"""Faults found in other systems' secure aggregation, F1 to F13 and a few more: each would be seen here."""

from dataclasses import fields, replace

import numpy as np
import pytest
from tests.secagg.consortium import Run, revealed, session, starts, vector

from consilia.core.errors import PlanError
from consilia.crypto.keys import derive
from consilia.crypto.prg import Mask, apply_masks
from consilia.secagg import client, server
from consilia.secagg.keyring import Keyring, own_mask_key
from consilia.secagg.messages import Advert, Adverts, Begin, Masked, Reveal, Shares, Survivors, Votes
from consilia.secagg.params import Session, least_threshold
from consilia.secagg.rules import ballot_text

A, B = "site-000", "site-001"


def mask_of(seed: bytes) -> bytes:
    words = np.zeros(4, np.uint32)
    apply_masks(words, [Mask(own_mask_key(seed, A, bytes(32)))])
    return words.tobytes()


def test_f1_the_generator_behind_masks_is_keyed_with_32_raw_bytes() -> None:
    """There: a key folded to 32 bits before it seeds a Mersenne Twister. (Known answers: tests/crypto/test_vectors.py.)"""
    ring = Keyring(session(3), A, bytes(32))
    key = ring.own_key(bytes(32))
    assert (type(key), len(key)) == (bytes, 32)
    assert len(set(key)) > 16  # raw bytes, not hex or base64 text, whose bytes are of 16 or 64 kinds below 128
    assert any(byte > 127 for byte in key)


def test_f2_each_of_the_256_bits_of_a_seed_changes_the_mask() -> None:
    """There: 28 bits of entropy were left."""
    plain = mask_of(bytes(32))
    masks = {mask_of((1 << bit).to_bytes(32, "little")) for bit in range(256)}
    assert len(masks | {plain}) == 257


def test_f2_each_bit_of_an_agreed_secret_changes_the_key() -> None:
    assert len({derive((1 << bit).to_bytes(32, "little"), info=b"") for bit in range(256)}) == 256


def test_f3_no_site_gives_both_kinds_of_shares_of_one_owner() -> None:
    """There: a site took overlapping lists of the active and the dead, and gave both. Here a reveal has one share an owner."""
    run = Run(session(5), {"masked": ["site-004"]})
    run.play()
    assert [field.name for field in fields(Reveal)] == ["shares"]
    state = run.states[A]
    pairs = {o: run.states[o].keyring.pairs(4, run.of.cohort, state.adverts_digest)[A] for o in run.of.cohort}
    given = revealed(run)[A].shares
    assert given == {o: pair.mask_key if o == "site-004" else pair.own_mask for o, pair in pairs.items()}


@pytest.mark.parametrize("adversary", ["active", "passive"])
@pytest.mark.parametrize("count", [3, 4, 5, 9, 10])
def test_f4_the_threshold_is_the_sites_own(count: int, adversary: str) -> None:
    """There: threshold 1 was accepted from the server. Here no message has one, and a session needs more than half or 2/3."""
    of = session(count, adversary=adversary)
    assert of.threshold == least_threshold(adversary, count)
    assert of.threshold * (3 if adversary == "active" else 2) > count * (2 if adversary == "active" else 1)
    assert not [
        field.name for kind in (Begin, Adverts, Survivors, Votes) for field in fields(kind) if "thres" in field.name
    ]


@pytest.mark.parametrize("stage", ["advert", "shares"])
@pytest.mark.parametrize("lost", range(10))
def test_f5_a_site_lost_before_or_while_sharing_keys_costs_only_its_turn(stage: str, lost: int) -> None:
    """There: the survivors all raised KeyError."""
    run = Run(session(10), {stage: [f"site-{lost:03d}"]})
    end = run.play()
    assert isinstance(end, server.Done)
    assert len(end.survivors) == 9
    np.testing.assert_array_equal(run.of.ring.center(end.total), run.expected(end.survivors))


@pytest.mark.parametrize("bits", [16, 24, 32, 64])
def test_f6_the_largest_sum_that_the_ring_is_said_to_hold_comes_out(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """There: a wrong quantity was compared, and only a warning given. (Which sums a plan may have: tests/plan.)"""
    of = session(4, bits=bits)
    largest = of.ring.largest // 4
    monkeypatch.setattr(
        "tests.secagg.consortium.vector", lambda site, of: of.ring.lift(np.array([largest, -largest, 0]))
    )
    end = Run(of).play()
    assert isinstance(end, server.Done)
    assert of.ring.center(end.total).tolist() == [4 * largest, -4 * largest, 0]


def test_f7_public_keys_are_signed_and_the_roster_is_the_consortiums() -> None:
    """There: the server could put its own in their place. (The tries themselves: test_hostile.py.)"""
    of = session(5)
    adverts = {site: client.step(state, Begin(of.session_id))[1][0] for site, state in starts(of).items()}
    for name in ("channel", "mask", "commitment", "signature"):
        true = adverts[B]
        assert isinstance(true, Advert)
        changed = replace(true, **{name: bytes([7]) * len(getattr(true, name))})
        begun, _ = client.step(starts(of)[A], Begin(of.session_id))
        _, answers = client.step(begun, Adverts({**adverts, B: changed}))  # type: ignore[dict-item]
        assert "signature of each site" in answers[0].reason  # type: ignore[union-attr]


def test_f8_every_key_is_bound_to_the_session() -> None:
    """There: HKDF without info. Here one changed field of a session changes every key, from the same seed."""
    of = session(5)
    changes = {
        "run": "x", "round": 8, "purpose": "evaluation", "plan_digest": "x", "model_digest": "x", "session_id": b"t" * 16,
        "fewest": 5, "dim": 4, "colluders": 1, "adversary": "passive",
    }  # fmt: skip
    contexts = {replace(of, **{name: value}).context for name, value in changes.items()}  # type: ignore[arg-type]
    assert len(contexts | {of.context}) == len(changes) + 1
    ring, peer = Keyring(of, A, bytes(32)), Keyring(of, B, bytes([1]) * 32).unsigned()
    for key in (
        ring.own_key,
        lambda bound: ring.pair_key(B, peer, bound),
        lambda bound: ring._lock_key(B, peer, A, B, bound),
    ):
        assert len({key(bound) for bound in contexts}) == len(changes)
    assert {field.name for field in fields(Session)} - set(changes) == {"roster", "cohort", "ring"}
    assert session(6).context != of.context != session(5, bits=64).context


def test_f8_a_vote_is_for_one_session_one_list_of_adverts_and_one_of_survivors() -> None:
    of = session(5)
    ballots = {
        ballot_text(session, adverts, Survivors(names))
        for session in (of, replace(of, round=8)) for adverts in (b"a" * 32, b"b" * 32) for names in (of.cohort, of.cohort[1:])
    }  # fmt: skip
    assert len(ballots) == 8


def test_f9_counts_and_metrics_have_no_field_to_leave_in() -> None:
    """There: example counts and losses went in clear. Here all that a site says is keys, shares, signatures, masked words."""
    said = {kind: [field.name for field in fields(kind)] for kind in (Advert, Shares, Masked, Reveal)}
    assert said == {
        Advert: ["channel", "mask", "commitment", "signature"], Shares: ["envelopes"], Masked: ["payload"],
        Reveal: ["shares"],
    }  # fmt: skip


@pytest.mark.parametrize(("bits", "width"), [(16, 2), (24, 3), (32, 4), (64, 8)])
def test_f10_a_word_takes_its_width_on_the_wire(bits: int, width: int) -> None:
    """There: 8 bytes for 32 bits."""
    run = Run(session(3, bits=bits, dim=1000))
    run.play()
    assert {len(m.to_bytes()) for _, m in run.said if isinstance(m, Masked)} == {1000 * width}


def test_f11_what_is_shared_is_32_bytes_and_a_share_33() -> None:
    """There: a text of 306 bytes, in twenty pieces."""
    run = Run(session(3))
    run.play()
    assert {len(share) for message in revealed(run).values() for share in message.shares.values()} == {33}


def test_f12_masks_take_the_largest_word_too() -> None:
    """There: never 2^32 - 1. Shown where it can be waited for: 2^16 words, 2^21 drawn. (Chi-square: test_secrecy.py.)"""
    words = np.zeros(1 << 21, np.uint16)
    apply_masks(words, [Mask(bytes(32))])
    counts = np.bincount(words, minlength=1 << 16)
    assert counts[-1] > 8  # 32 expected
    assert counts.min() > 0


WRONG: dict[str, list[object]] = {
    "run": ["", None, 0, b"x"], "round": [0, -1, True, None, "1", 1.0], "purpose": ["", None, 0, "updates"],
    "plan_digest": ["", None, 0], "model_digest": ["", None, False], "cohort": [(), None, [], ("b", "a"), (A, A), ("x",)],
    "session_id": [b"", None, "s" * 16, 0, bytes(15)], "adversary": ["", None, 0, "none"],
    "fewest": [0, None, "", 2, True, 4.0, 99], "colluders": [-1, None, "", False, 0.0, 4], "dim": [0, None, "", True],
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_f13_wrong_values_that_count_as_false_are_wrong(name: str, value: object) -> None:
    """There: a check of the form any(wrong ones) let 0, "" and None pass."""
    with pytest.raises(PlanError):
        replace(session(5), **{name: value})  # type: ignore[arg-type]


def test_masks_are_words_of_a_ring_and_no_real_numbers() -> None:
    """Elsewhere: real masks without a modulus, which an average sees through."""
    run = Run(session(5, dim=4096))
    run.play()
    state = run.states[A]
    seen = {m.payload for s, m in run.said if s == A and isinstance(m, Masked)}
    words = run.of.ring.unpack(seen.pop(), run.of.dim, who="test").astype(np.float64)
    assert abs(np.corrcoef(words, vector(A, run.of).astype(np.float64))[0, 1]) < 6 / 64
    assert state.session.ring.dtype == np.uint32


def test_a_lost_message_desynchronises_nothing() -> None:
    """Elsewhere: one generator for ever, which one lost message puts out of step. Here every session draws its keys anew."""
    keys = {starts(session(3), number)[A].keyring.unsigned().mask for number in range(20)}
    assert len(keys) == 20
