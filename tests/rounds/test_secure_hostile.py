"""Real sites behind masks, in front of a coordinator that lies: each lie is refused, and the ledger shows no less than left."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.rounds.bench import RECORD, Bench
from tests.rounds.hand import FIRST, Hand, charged, refused
from tests.rounds.secure_bench import SITES, secret

from consilia.core.canonical import Json
from consilia.core.wire import pack_vector
from consilia.crypto.signing import SigningKey
from consilia.secagg.messages import Advert, Adverts, Begin, Inbox, Reveal, Survivors, Vote, Votes
from consilia.secagg.transcript import Entry

ME, OTHER = "Cleveland", "Hungary"
ALL, REST = tuple(SITES), tuple(site for site in SITES if site != OTHER)
SECOND = b"2" * 16
BenchMaker = Callable[..., Bench]


def masks(rounds: int = 2, **more: Any) -> Any:
    return secret("masks", rounds=rounds, privacy=RECORD, reproducible=False, **more)


def test_an_honest_session_led_by_hand_comes_to_its_end(bench: BenchMaker) -> None:
    """The hand works: what it is refused elsewhere, it is refused for the lie."""
    hand = Hand(bench(masks())).keys().vectors()
    votes = hand.votes(dict.fromkeys(SITES, ALL))
    assert all(isinstance(vote, Vote) for vote in votes.values())
    signatures = Votes({site: vote.signature for site, vote in votes.items()})  # type: ignore[union-attr]
    assert all(isinstance(hand.step(site, signatures), Reveal) for site in SITES)


def test_no_second_session_once_a_vector_has_left(bench: BenchMaker) -> None:
    one = bench(masks())
    first = Hand(one).keys().vectors()
    second = Hand(one, SECOND)
    assert refused(second.step(ME, Begin(SECOND)))
    second.inboxes = first.inboxes
    assert refused(second.vector(ME))
    assert charged(one, ME) == 1
    # Under the first one the same bytes come again, whatever the inbox says now.
    again = first.vector(ME)
    assert first.vector(ME, Inbox({})) == again
    assert charged(one, ME) == 1


def test_a_session_begun_anew_before_a_vector_left_ends_the_one_before(bench: BenchMaker) -> None:
    one = bench(masks())
    first = Hand(one).keys()
    second = Hand(one, SECOND).keys()
    assert refused(first.vector(ME))
    assert charged(one, ME) == 0
    second.vectors()
    assert charged(one, ME) == 1


def test_a_task_with_another_model_than_the_sessions_is_refused_before_any_charge(bench: BenchMaker) -> None:
    one = bench(masks())
    hand = Hand(one).keys()
    model, hand.model = hand.model, pack_vector(one.prepared.initial + 1)
    assert refused(hand.vector(ME))
    assert charged(one, ME) == 0
    hand.model = model
    assert not refused(hand.vector(ME))


@pytest.mark.parametrize(
    "change",
    [
        {"plan": "x" * 64},
        {"run": "other"},
        {"session": SECOND.hex()},
        {"session": 7},
        {"purpose": "audit"},
        {"model": None},
    ],
)
def test_steps_of_another_run_plan_or_session_are_refused(change: dict[str, Json], bench: BenchMaker) -> None:
    one = bench(masks())
    hand = Hand(one).keys()
    hand.body |= change
    assert refused(hand.step(ME, Begin(FIRST)))
    assert refused(hand.step(ME, Survivors(ALL)))
    if not {"purpose", "model"} & set(change):  # a task to train says neither
        assert refused(hand.vector(ME))
    assert charged(one, ME) == 0


@pytest.mark.parametrize("number", [0, 2, 99, -1])
def test_steps_of_another_round_are_refused(number: int, bench: BenchMaker) -> None:
    one = bench(masks())
    hand = Hand(one).keys()
    hand.number = number
    assert refused(hand.vector(ME))
    assert refused(hand.step(ME, Survivors(ALL)))
    assert charged(one, ME) == 0


def test_keys_of_another_session_are_refused(bench: BenchMaker) -> None:
    one = bench(masks())
    old = {site: Hand(one).step(site, Begin(FIRST)) for site in SITES}
    hand = Hand(one, SECOND)
    fresh = {site: hand.step(site, Begin(SECOND)) for site in SITES}
    assert refused(hand.step(ME, Adverts({**fresh, OTHER: old[OTHER]})))  # type: ignore[dict-item]


@pytest.mark.parametrize("change", ["flipped", "missing", "stranger", "swapped"])
def test_a_changed_inbox_is_refused_before_any_charge(change: str, bench: BenchMaker) -> None:
    one = bench(masks())
    hand = Hand(one).keys()
    envelopes = dict(hand.inboxes[ME].envelopes)
    if change == "flipped":
        envelopes[OTHER] = envelopes[OTHER][:-1] + bytes([envelopes[OTHER][-1] ^ 1])
    elif change == "missing":
        envelopes = {OTHER: envelopes[OTHER]}  # with its own vector and one more: two
    elif change == "stranger":
        envelopes["Basel"] = envelopes[OTHER]
    else:
        first, second = (site for site in envelopes if site != OTHER)
        envelopes[first], envelopes[second] = envelopes[second], envelopes[first]
    assert refused(hand.vector(ME, Inbox(envelopes)))
    assert refused(hand.vector(ME))  # the session is over at this site
    assert charged(one, ME) == 0


def test_lists_of_survivors_that_differ_open_nothing(bench: BenchMaker) -> None:
    hand = Hand(bench(masks())).keys().vectors()
    lists = {site: ALL if site in (ME, OTHER) else REST for site in SITES}
    votes = hand.votes(lists)
    assert all(isinstance(vote, Vote) for vote in votes.values())
    signatures = {site: vote.signature for site, vote in votes.items()}  # type: ignore[union-attr]
    for site in SITES:
        known = {name: signature for name, signature in signatures.items() if name in lists[site]}
        assert refused(hand.step(site, Votes(known)))


def test_a_site_votes_once(bench: BenchMaker) -> None:
    hand = Hand(bench(masks())).keys().vectors()
    assert isinstance(hand.step(ME, Survivors(ALL)), Vote)
    assert isinstance(hand.step(ME, Survivors(ALL)), Vote)
    assert refused(hand.step(ME, Survivors(REST)))
    assert refused(hand.step(ME, Survivors(ALL)))


@pytest.mark.parametrize("names", [(ME,), (ME, OTHER), REST[1:], (*ALL, "Basel")], ids=str)
def test_a_list_of_too_few_or_others_is_not_voted_for(names: tuple[str, ...], bench: BenchMaker) -> None:
    hand = Hand(bench(masks())).keys().vectors()
    assert refused(hand.step(ME, Survivors(tuple(sorted(names)))))


def test_what_a_site_voted_for_binds_it_after_a_restart(bench: BenchMaker) -> None:
    one = bench(masks())
    hand = Hand(one).keys().vectors()
    assert isinstance(hand.step(ME, Survivors(ALL)), Vote)
    half: Any = one.simulation.sites[ME]._sums
    half._sums.clear()  # what a restart forgets
    assert refused(Hand(one, SECOND).step(ME, Begin(SECOND)))
    assert refused(hand.step(ME, Survivors(REST)))


def test_scores_of_a_round_leave_in_one_sum(bench: BenchMaker) -> None:
    one = bench(masks())
    Hand(one, purpose="evaluation").keys().vectors()
    second = Hand(one, SECOND, purpose="evaluation")
    assert all(refused(second.step(site, Begin(SECOND))) for site in REST)
    # Nor in rounds that the schedule does not have: its last one is the one after training.
    for number in (0, 4, 10**6):
        assert refused(Hand(one, SECOND, purpose="evaluation", number=number).step(ME, Begin(SECOND)))
    assert isinstance(Hand(one, SECOND, purpose="evaluation", number=3).step(ME, Begin(SECOND)), Advert)


def _first_entry(one: Bench) -> dict[str, Any]:
    entry = one.coordinator._round(1).transcript
    assert entry is not None
    return dict(entry)


def _signed(one: Bench, entry: dict[str, Any], **changes: Any) -> dict[str, Any]:
    assert one.simulation.consortium is not None
    return _by(one.simulation.consortium.signing, {**entry, **changes})


def _by(key: SigningKey, entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry, "signature": key.sign(Entry.from_json(entry).text).hex()}


LIES: dict[str, Callable[[Bench, dict[str, Any]], object]] = {
    "forged": lambda one, entry: _by(SigningKey(b"x" * 32), entry),
    "changed": lambda one, entry: {**entry, "total": "0" * 64},
    "chain broken": lambda one, entry: _signed(one, entry, previous="0" * 64),
    "another upload": lambda one, entry: _signed(one, entry, uploads={**entry["uploads"], ME: "0" * 64}),
    "without its upload": lambda one, entry: _signed(
        one, entry, uploads={site: digest for site, digest in entry["uploads"].items() if site != ME}
    ),
    "other survivors": lambda one, entry: _signed(
        one, entry, uploads={site: digest for site, digest in entry["uploads"].items() if site != OTHER}
    ),
    "another session": lambda one, entry: _signed(one, entry, context="0" * 64),
    "another model before": lambda one, entry: _signed(one, entry, model_in="0" * 64),
    "another model after": lambda one, entry: _signed(one, entry, model_out="0" * 64),
    "another run": lambda one, entry: _signed(one, entry, run="other"),
    "no entry": lambda one, entry: {"round": 1},
}


# Nothing that the coordinator said: damaged on their way, these cost a session and not the run.
UNSIGNED = ("forged", "changed", "no entry")


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("lie", LIES)
def test_a_signed_entry_that_lies_ends_the_run_at_this_site(lie: str, restarted: bool, bench: BenchMaker) -> None:
    one = bench(masks())
    entry = _first_entry(one)
    half: Any = one.simulation.sites[ME]._sums
    if restarted:
        half._sums.clear()
    model = pack_vector(one.coordinator.state.model)
    told: Any = LIES[lie](one, entry)
    assert refused(Hand(one, SECOND, number=2, model=model, entries=[told]).step(ME, Begin(SECOND)))
    assert half._store.transcript("bench") == []
    after = Hand(one, SECOND, number=2, model=model, entries=[entry]).step(ME, Begin(SECOND))
    if lie in UNSIGNED:
        assert isinstance(after, Advert)
    else:
        assert refused(after)
    assert charged(one, ME) == 1


@pytest.mark.parametrize("restarted", [False, True])
def test_the_true_entry_is_kept_and_may_come_again(restarted: bool, bench: BenchMaker) -> None:
    one = bench(masks())
    entry = _first_entry(one)
    half: Any = one.simulation.sites[ME]._sums
    if restarted:
        half._sums.clear()
    model = pack_vector(one.coordinator.state.model)
    for sid in (FIRST, SECOND):
        hand = Hand(one, sid, number=2, model=model, entries=[entry])
        assert isinstance(hand.step(ME, Begin(sid)), Advert)
    assert len(half._store.transcript("bench")) == 1


def test_a_model_that_is_not_the_one_signed_for_is_refused(bench: BenchMaker) -> None:
    one = bench(masks())
    entry = _first_entry(one)
    model = pack_vector(one.coordinator.state.model + np.float32(1))
    assert refused(Hand(one, SECOND, number=2, model=model, entries=[entry]).step(ME, Begin(SECOND)))
