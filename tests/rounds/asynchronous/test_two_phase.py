"""Two-phase rounds: nobody waits for the slow, the slow lose nothing, and who comes, goes or is killed costs itself at most."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest
from tests.rounds.asynchronous.stage import DELAYS, MASKS, SITES, Stage, body, claim, slow

from consilia.core.update import Gone
from consilia.rounds.ports import Arrival

StageMaker = Callable[..., Stage]
QUICK_ONES, SLOW_ONE = SITES[:2], SITES[3]
SECURE = [pytest.param("", id="clear"), pytest.param(MASKS, id="masks")]
PRIVATE = {"privacy": claim("site", "distributed"), "secure": MASKS}


def asked(one: Stage, kind: str = "prepare") -> tuple[list[tuple[str, int]], Stage]:
    """Note (site, round) of every task of a kind."""
    found: list[tuple[str, int]] = []

    def note(site: str, frame: bytes) -> None:
        task = body(frame)
        if task.kind == kind:
            found.append((site, task.round))

    one.frames = note
    return found, one


@pytest.mark.parametrize("secure", SECURE)
def test_a_round_ends_when_enough_are_ready_and_the_slow_go_on(secure: str, stage: StageMaker) -> None:
    prepared, one = asked(stage(slow(secure=secure)))
    records = one.train()
    assert [record["staleness"] for record in records] == [
        {SITES[0]: 0, SITES[1]: 0, SITES[2]: 0},  # at 2 s
        {SITES[0]: 0, SITES[1]: 0, SITES[3]: 1},  # at 4 s the slowest has an update of the first model
        {SITES[0]: 0, SITES[1]: 0, SITES[2]: 1},
        {SITES[0]: 0, SITES[1]: 0, SITES[2]: 0},
        {SITES[0]: 0, SITES[1]: 0, SITES[3]: 2},
        {SITES[0]: 0, SITES[1]: 0, SITES[2]: 1},
    ]
    assert [record["asked"] for record in records] == [sorted(record["staleness"]) for record in records]
    assert all(record["status"] == "counted" and record["dropped"] == {} for record in records)
    assert 9.0 <= one.transport.clock() <= 9.1  # a synchronous run takes 6 x 4 s
    # Whoever works is not asked again: one task an update.
    took_part = Counter(site for record in records for site in record["answered"])
    assert all(0 <= count - took_part[site] <= 1 for site, count in Counter(site for site, _ in prepared).items())


def test_in_the_reproducible_mode_the_same_delays_give_the_same_bits(stage: StageMaker) -> None:
    plan = slow(secure=MASKS, reproducible=True, metrics="public")
    first, again = stage(plan, folder="first"), stage(plan, folder="again")
    others = stage(plan, dict(zip(SITES, (4.0, 2.0, 1.0, 1.0), strict=True)), folder="others")
    for one in (first, again, others):
        one.train()
    assert first.model.tobytes() == again.model.tobytes()
    assert first.model.tobytes() != others.model.tobytes()  # who is ready first does matter


def test_at_the_deadline_those_that_are_ready_are_added_and_the_late_one_comes_later(stage: StageMaker) -> None:
    plan = slow(ready=4, rounds=4, aggregation="quorum = 0.5", privacy=claim("site", "site"))
    plan = plan.model_copy(update={"aggregation": plan.aggregation.model_copy(update={"deadline_seconds": 3.0})})
    one = stage(plan)
    records = one.train()
    assert records[0]["staleness"] == dict.fromkeys(SITES[:3], 0)
    assert records[0]["dropped"] == {SLOW_ONE: "no answer before the deadline"}
    assert records[1]["staleness"] == {**dict.fromkeys(SITES[:3], 0), SLOW_ONE: 1}  # what waited there by then
    assert one.charged(SLOW_ONE) == 2  # asked thrice, charged for what it computed


def test_with_too_few_ready_a_round_is_skipped_and_what_waits_goes_on_waiting(stage: StageMaker) -> None:
    one = stage(slow(ready=3, rounds=3, secure=MASKS, privacy=claim("site", "distributed")))
    away = {name: one.transport._sites.pop(name) for name in SITES[2:]}  # type: ignore[attr-defined]

    def come_back(record: dict[str, Any]) -> None:
        one.transport._sites.update(away)  # type: ignore[attr-defined]

    one.coordinator.train(come_back)
    first, second, third = one.journal.records()
    assert (first["status"], first["reason"]) == ("skipped", "2 of 3 ready; 3 needed")
    assert first["asked"] == list(SITES)
    assert first["dropped"] == dict.fromkeys(SITES[2:], "not connected")
    assert second["staleness"] == dict.fromkeys(SITES[:3], 0)  # a round that did not count ages nobody
    assert third["status"] == "counted"
    assert one.charged(SITES[0]) == 2  # its first update waited for the second round


@pytest.mark.parametrize("secure", SECURE)
def test_sites_leave_and_join_between_rounds(secure: str, stage: StageMaker) -> None:
    one = stage(slow(secure=secure, rounds=8), dict.fromkeys(SITES, 1.0))
    late = one.transport._sites.pop(SLOW_ONE)  # type: ignore[attr-defined]

    def moves(record: dict[str, Any]) -> None:
        if record["round"] == 2:
            one.transport._sites[SLOW_ONE] = late  # type: ignore[index]
        if record["round"] == 5:
            del one.transport._sites[SITES[0]]  # type: ignore[attr-defined]

    one.coordinator.train(moves)
    records = one.journal.records()
    assert all(record["status"] == "counted" for record in records)
    assert all(SLOW_ONE not in record["answered"] for record in records[:2])
    assert records[0]["dropped"] == {SLOW_ONE: "not connected"}
    assert any(SLOW_ONE in record["answered"] for record in records[2:])
    assert all(SITES[0] not in record["answered"] for record in records[6:])
    assert records[-1]["dropped"] == {SITES[0]: "not connected"}


def test_too_old_an_update_is_dropped_stays_charged_and_another_is_begun(stage: StageMaker) -> None:
    delays = {**dict.fromkeys(SITES, 1.0), SLOW_ONE: 3.5}
    one = stage(slow(rounds=8, aggregation="max_staleness = 1", privacy=claim("site", "site")), delays)
    prepared, _ = asked(one)
    records = one.train()
    assert all(record["status"] == "counted" for record in records)
    assert all(age <= 1 for record in records for age in record["staleness"].values())
    assert any("more than 1" in why for record in records for why in record["dropped"].values())
    assert one.charged(SLOW_ONE) == sum(site == SLOW_ONE for site, _ in prepared) == 2
    assert sum(SLOW_ONE in record["answered"] for record in records) <= 1  # the second; the first was in no sum


@pytest.mark.parametrize("privacy", [{}, PRIVATE], ids=["plain", "private"])
def test_a_coordinator_that_was_restarted_asks_again_and_what_waits_is_ready_at_once(
    privacy: dict[str, Any], stage: StageMaker
) -> None:
    plan = slow(rounds=6, **privacy)
    one = stage(plan)

    def stop(record: dict[str, Any]) -> None:
        if record["round"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        one.coordinator.train(stop)
    # The third site was to be ready for the next round: it has trained, and nobody has heard of it.
    for moment in list(one.transport._under_way):
        one.simulation.sites[moment.site].handle(moment.frame)
    waiting = {site: version for site in SITES if (version := one.waiting(site)) is not None}
    one.close()
    again = stage(plan, resume=True)
    records = again.train()
    assert [record["status"] for record in records] == ["counted"] * 6
    assert waiting
    for site, version in waiting.items():
        entered = next(record for record in records[3:] if site in record["staleness"])
        assert entered["round"] - 1 - entered["staleness"][site] == version  # no round was skipped, so these are steps
    if privacy:
        sums = Counter(site for record in records for site in record["answered"])
        for site in SITES:
            assert sums[site] <= again.charged(site) <= sums[site] + 1  # the last one may still be waiting


class Repeating:
    """Says everything about being ready three times: at once, and again with each later event."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.heard: list[Arrival] = []

    def send(self, site: str, frame: bytes) -> None:
        self.inner.send(site, frame)

    def events(self, timeout: float, of: Collection[str] | None = None) -> Iterator[Arrival | Gone]:
        for event in self.inner.events(timeout, of):
            yield from self.heard
            yield event
            if isinstance(event, Arrival) and b'"kind":"ready"' in bytes(event.frame[:400]):
                self.heard = [*self.heard[-3:], event]
                yield event


@pytest.mark.parametrize("secure", SECURE)
def test_late_and_repeated_words_of_being_ready_change_nothing(secure: str, stage: StageMaker) -> None:
    plan = slow(secure=secure, reproducible=True, metrics="public")
    plain, told = stage(plan, folder="plain"), stage(plan, folder="told")
    repeating = Repeating(told.transport)
    told.gatherer._background._transport = repeating
    told.gatherer._adder._transport._inner = repeating
    beside = ("bytes_up", "transcript")  # what was said again was heard again; each folder has keys of its own
    found = [[{key: value for key, value in record.items() if key not in beside} for record in one.train()]
             for one in (plain, told)]  # fmt: skip
    assert found[0] == found[1]
    assert repeating.heard
    assert plain.model.tobytes() == told.model.tobytes()


def test_scores_are_asked_of_those_that_took_part_and_of_all_at_the_end(stage: StageMaker) -> None:
    one = stage(slow(metrics="public", rounds=4))
    records = one.train()
    for record in records:
        assert {site for site, score in record["per_site"].items() if score != "hidden"} == set(record["answered"])
        assert record["accuracy"] is not None
    _, final = one.coordinator.evaluate_result()
    assert all(score != "hidden" for score in final.per_site.values())


def test_a_run_in_which_too_few_may_begin_another_update_ends(stage: StageMaker) -> None:
    # Two sites are quick and use up their turns; the other two cannot fill a cohort of three.
    one = stage(slow(rounds=8, ready=3, secure=MASKS, privacy=claim("site", "distributed"),
                     aggregation="max_participations = 6"), {**DELAYS, SITES[2]: 30.0, SITES[3]: 35.0})  # fmt: skip
    records = one.train()
    assert records[-1]["status"] in ("skipped", "counted")
    assert len(records) == 8 or one.coordinator.state.stopped is not None
    assert all(one.charged(site) <= 6 for site in SITES)
    took = Counter(site for record in records for site in record["answered"])
    assert all(count <= 6 for count in took.values())
