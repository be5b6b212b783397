"""A hostile coordinator of two-phase rounds: whom it names, how often it asks, what it repeats."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.rounds.asynchronous.hand import Lead, refused
from tests.rounds.asynchronous.stage import MASKS, SITES, Stage, claim, slow

from consilia.core.canonical import Json
from consilia.core.update import ProtocolMessage, Release
from consilia.core.wire import encode
from consilia.secagg.messages import Advert, Adverts, Begin, Refused

StageMaker = Callable[..., Stage]
A, B, C, D = SITES
THREE = (A, B, C)


@pytest.fixture
def lead(stage: StageMaker) -> Lead:
    return Lead(stage(slow(secure=MASKS, privacy=claim("site", "distributed"), rounds=5)))


@pytest.mark.parametrize(
    "named",
    [[B, C, D], [A, B], [A, B, C, D], [A, A, B], [C, B, A], [A, B, "Boston"], [A, B, 7], "A", None, {}, [[A], B, C]],
    ids=["without the site", "too small", "too large", "twice", "out of order", "a stranger", "a number", "a text", "none",
         "a table", "a list"],
)  # fmt: skip
def test_a_cohort_that_a_site_may_not_be_in(lead: Lead, named: Json) -> None:
    assert isinstance(lead.prepare(A, 1), ProtocolMessage)
    session = lead.session(1)
    session.named = named
    answer = session.step(A, Begin(session.sid))
    assert refused(answer), answer
    session.named = list(THREE)
    assert isinstance(session.step(A, Begin(session.sid)), Advert)  # and the site goes on with who is honest


def test_two_sites_that_are_told_two_cohorts_do_not_take_each_other_for_real(lead: Lead) -> None:
    for site in SITES:
        lead.prepare(site, 1)
    one, other = lead.session(1, THREE), lead.session(1, (A, B, D))
    adverts: dict[str, Any] = {
        A: one.step(A, Begin(one.sid)),
        C: one.step(C, Begin(one.sid)),
        B: other.step(B, Begin(other.sid)),
    }
    assert isinstance(one.step(A, Adverts(adverts)), Refused)


def test_an_update_is_in_one_sum(lead: Lead) -> None:
    for site in THREE:
        lead.prepare(site, 1)
    first = lead.session(1).keys()
    sent = {site: first.add(site) for site in THREE}
    assert all(isinstance(item, Release) for item in sent.values())
    again = first.add(A)
    assert encode(again) == encode(sent[A])  # asked again, byte for byte
    # Another session of the round, and another round: what was given is gone.
    assert refused(lead.session(1, THREE, b"2" * 16).step(A, Begin(b"2" * 16)))
    second = lead.session(2, THREE, b"3" * 16).keys()
    for site in THREE:
        assert refused(second.add(site))
    assert lead.one.charged(A) == 1


def test_an_update_that_was_asked_for_and_refused_is_in_a_later_sum(lead: Lead) -> None:
    for site in THREE:
        lead.prepare(site, 1)
    broken = lead.session(1).keys()
    assert refused(broken.add(A, model="0" * 64))
    assert refused(broken.add(A, began=1, version=1))
    later = lead.session(2, THREE, b"2" * 16).keys()
    assert all(isinstance(later.add(site), Release) for site in THREE)
    assert {lead.one.charged(site) for site in THREE} == {1}


@pytest.mark.parametrize(("version", "began"), [(-1, 0), (0, 1), (4, 0), (True, 0), ("1", 0), (None, 0), (10**30, 0)])
def test_a_lie_about_an_updates_age(lead: Lead, version: Json, began: Json) -> None:
    for site in THREE:
        lead.prepare(site, 1)
    session = lead.session(1).keys()
    assert refused(session.add(A, version=version, began=began))
    assert isinstance(session.add(A), Release)  # the update is there still, for who tells the truth


def test_rounds_only_go_forward(lead: Lead) -> None:
    for site in THREE:
        lead.prepare(site, 2)
    session = lead.session(2).keys()
    for site in THREE:
        session.add(site)
    for number in (1, 2):  # recorded tasks, replayed
        assert refused(lead.prepare(A, number))
        assert refused(lead.session(1, THREE, b"9" * 16).step(A, Begin(b"9" * 16)))
    assert lead.one.charged(A) == 1
    assert isinstance(lead.prepare(A, 3, version=1), ProtocolMessage)
    assert lead.one.charged(A) == 2


def test_a_repeated_task_to_prepare_costs_nothing(lead: Lead) -> None:
    answers = [lead.prepare(A, 1) for _ in range(5)]
    assert len({encode(answer) for answer in answers}) == 1
    assert lead.one.charged(A) == 1


def test_a_site_begins_no_more_updates_than_its_ledger_was_asked_for(stage: StageMaker) -> None:
    lead = Lead(
        stage(slow(secure=MASKS, privacy=claim("site", "distributed"), rounds=5, aggregation="max_participations = 4"))
    )
    for number in range(1, 5):
        for site in THREE:
            assert not refused(lead.prepare(site, number, version=number - 1), "BudgetExceeded")
        session = lead.session(
            number, THREE, bytes([number]) * 16, version=number - 1, began=dict.fromkeys(THREE, number - 1)
        ).keys()
        assert all(isinstance(session.add(site), Release) for site in THREE)
    assert refused(lead.prepare(A, 5, version=4), "BudgetExceeded")
    fifth = lead.session(5, THREE, b"5" * 16, version=4, began=dict.fromkeys(THREE, 4)).keys()
    assert refused(fifth.add(A))
    assert lead.one.charged(A) == 4


def test_updates_that_are_let_go_stale_stay_charged_and_end_at_the_bound(stage: StageMaker) -> None:
    lead = Lead(
        stage(slow(secure=MASKS, privacy=claim("site", "distributed"), rounds=4, aggregation="max_staleness = 0"))
    )
    for number in range(1, 5):
        answer = lead.prepare(A, number, version=number - 1)
        assert isinstance(answer, ProtocolMessage)
        assert answer.body["version"] == number - 1
        assert lead.one.charged(A) == number
    assert refused(lead.prepare(A, 5, version=4), "BudgetExceeded")


@pytest.mark.parametrize("kind", ["train", "add", "prepare"])
@pytest.mark.parametrize("mode", ["synchronous", "two-phase"])
def test_each_mode_has_its_own_tasks(kind: str, mode: str, stage: StageMaker) -> None:
    plan = slow()
    if mode == "synchronous":
        plan = plan.model_copy(update={"aggregation": type(plan.aggregation)()})
    lead = Lead(stage(plan))
    answer = lead.tell(A, kind, 1, lead.model, {"version": 0, "began": 0, "model": "0" * 64})
    allowed = (kind == "train") == (mode == "synchronous") and kind != "add"
    assert refused(answer) == (not allowed)


def test_what_a_site_says_of_being_ready_is_not_computed_from_its_rows(lead: Lead) -> None:
    answer = lead.prepare(A, 1)
    assert isinstance(answer, ProtocolMessage)
    assert (answer.kind, answer.round, bytes(answer.payload)) == ("ready", 1, b"")
    assert set(answer.body) == {"version", "model", "charges", "ledger_head"}
    assert (answer.body["version"], answer.body["charges"]) == (0, 1)
