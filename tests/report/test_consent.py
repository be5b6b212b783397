"""What a steward reads, for plans of all kinds: nothing is claimed that is not, and what the policy breaks is there."""

from collections.abc import Sequence

import pytest
from tests.plan.offers import SITE, checked, heart, verdict

from consilia.core.spec import Adjacency
from consilia.dp.ledger import Relation
from consilia.plan.run_plan import RunPlan
from consilia.report.consent import Summary, summary

OPEN_SUM = ("secure_sum.mode=none", "secure_sum.dropouts=0", "secure_sum.colluders=0")


def told(plan: RunPlan, policy: str = "", spent: float = 0.0, limit: float = 3.0) -> Summary:
    half = plan.site(SITE)
    before = {Relation(half.adjacency, half.against): (spent, 0.0)} if spent else {}
    return summary("first", half, plan, verdict(policy, plan, before), before, limit)


def row(found: Summary, title: str, label: str) -> str:
    group = next(group for group in found.groups if group.title == title)
    return next(f"{row.value} ({row.note})" for row in group.rows if row.label == label)


def test_the_budget_before_and_after() -> None:
    found = told(checked("privacy.epsilon=1"), spent=1.25)
    assert row(found, "Budget of the data set", "So far").startswith("1.25 ")
    assert row(found, "Budget of the data set", "This run").startswith("1 ")
    assert row(found, "Budget of the data set", "Left after it").startswith("0.75")
    assert row(told(checked(), limit=float("inf")), "Budget of the data set", "Left after it").startswith("no limit")
    other = {Relation(Adjacency.REPLACE_ONE, "server"): (0.5, 0.0)}
    plan = checked()
    mixed = summary("first", plan.site(SITE), plan, verdict("", plan, other), other, 3.0)
    assert "0.5 replace-one against server" in row(mixed, "Budget of the data set", "And bounded otherwise")


@pytest.mark.parametrize(("changes", "words"), [
    ((), ("one record", "masked: only sums are opened", "epsilon 1 at delta 1e-6")),
    (("privacy.noise=site", *OPEN_SUM), ("each site's update, clipped and noised", "epsilon 1 at delta 1e-6")),
    (("privacy.noise=server", *OPEN_SUM), ("each site's clipped update, without noise", "Epsilon against server: none")),
    (("run.reproducible=true",), ("anyone can recompute", "no epsilon: reproducible mode is not private")),
    (("privacy.unit=site", "privacy.noise=site", *OPEN_SUM), ("one site", "zero-out")),
])  # fmt: skip
def test_what_leaves_and_what_is_claimed(changes: Sequence[str], words: Sequence[str]) -> None:
    found = told(checked(*changes))
    text = "\n".join(
        [found.claim, *(f"{row.label}: {row.value} ({row.note})" for group in found.groups for row in group.rows)]
    )
    for word in words:
        assert word in text, (word, text)


def test_a_built_in_table_and_a_run_that_claims_nothing() -> None:
    found = told(heart("heart"))
    assert row(found, "The plan", "Data set") == "heart (a built-in table)"
    assert row(found, "Budget of the data set", "This run").startswith("none")
    assert row(found, "Budget of the data set", "Left after it").startswith("none")


def test_clauses_are_those_of_the_verdict() -> None:
    plan = checked("privacy.epsilon=3")
    found = told(plan)
    assert found.answer == "refused"
    assert [clause.key for clause in found.clauses if not clause.holds] == ["privacy.max_epsilon_run"]
    assert found.to_json()["digest"] == plan.digest
