"""Sites that come late or leave between synchronous rounds: the schedule asks them all the same, and the quorum decides."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.rounds.asynchronous.stage import FEDSGD, MASKS, SITES, Stage, claim

from consilia.core.errors import ProtocolError
from consilia.plan.load import from_text
from consilia.plan.schema import Plan

StageMaker = Callable[..., Stage]
A, LATE = SITES[0], SITES[3]


def plan(*, rounds: int = 6, secure: str = "", aggregation: str = "", privacy: str = 'unit = "none"') -> Plan:
    return from_text(f"""
[data]
source = "heart"
split = "exact"
test_fraction = 0.34
[sites]
counts = "public"
[training]
rounds = {rounds}
{FEDSGD}
[privacy]
{privacy}
[aggregation]
{aggregation}
[secure_sum]
{secure}
""")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[StageMaker]:
    made: list[Stage] = []

    def make(of: Plan) -> Stage:
        made.append(Stage(of, tmp_path, dict.fromkeys(SITES, 1.0)))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("secure", ["", MASKS + "\ndropouts = 1"], ids=["clear", "masks"])
def test_who_comes_late_takes_its_turns_from_then_on_and_who_leaves_is_dropped(secure: str, stage: StageMaker) -> None:
    privacy = claim("record", "distributed" if secure else "site", z=5.0)
    one = stage(plan(secure=secure, privacy=privacy))
    late = one.transport._sites.pop(LATE)  # type: ignore[attr-defined]

    def moves(record: dict[str, Any]) -> None:
        if record["round"] == 2:
            one.transport._sites[LATE] = late  # type: ignore[index]
        if record["round"] == 4:
            del one.transport._sites[A]  # type: ignore[attr-defined]

    one.coordinator.train(moves)
    records = one.journal.records()
    assert [record["asked"] for record in records] == [list(SITES)] * 6
    assert [record["answered"] for record in records] == [
        list(SITES[:3]), list(SITES[:3]), list(SITES), list(SITES), list(SITES[1:]), list(SITES[1:])
    ]  # fmt: skip
    assert [record["dropped"] for record in records] == [
        *[{LATE: "not connected"}] * 2, {}, {}, *[{A: "not connected"}] * 2
    ]  # fmt: skip
    assert all(record["status"] == "counted" for record in records)
    assert (one.charged(LATE), one.charged(A)) == (4, 4)  # nobody is charged for rounds in which it was not there


def test_the_schedule_asks_a_late_site_when_its_turn_comes(stage: StageMaker) -> None:
    one = stage(plan(rounds=8, aggregation='selection = "count"\ncount = 2'))
    late = one.transport._sites.pop(LATE)  # type: ignore[attr-defined]
    one.coordinator.train(lambda record: one.transport._sites.update({LATE: late}) if record["round"] == 3 else None)  # type: ignore[attr-defined]
    for record, asked in zip(one.journal.records(), one.plan.schedule, strict=True):
        assert record["asked"] == sorted(asked)
        there = [site for site in sorted(asked) if site != LATE or record["round"] > 3]
        assert record["answered"] == there
    assert any(LATE in record["answered"] for record in one.journal.records())


def test_without_a_quorum_no_round_counts_and_the_run_says_why(stage: StageMaker) -> None:
    one = stage(plan(aggregation="quorum = 3"))
    for site in SITES[:2]:
        del one.transport._sites[site]  # type: ignore[attr-defined]
    with pytest.raises(ProtocolError, match="not connected"):
        one.train()
    assert {record["reason"] for record in one.journal.records()} == {"2 of 4 answers; quorum 3"}
