"""The steward's part: what waits is shown in full, an approval is of one digest, and the policy's file is checked."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.plan.offers import SITE, checked

from consilia.cli import site_consent
from consilia.cli.site_consent import Desk
from consilia.core.errors import PlanError
from consilia.plan.consent import Verdict, judge
from consilia.plan.policy import Policy
from consilia.plan.policy_template import policy_template
from consilia.plan.run_plan import RunPlan
from consilia.store.consents import Offered
from consilia.store.ledger_store import SiteStore


class Office:
    """A desk at a site whose offers name the changes of the plan that they are of."""

    def __init__(self, folder: Path, policy: str = "") -> None:
        self.store = SiteStore.open(folder / f"{SITE}.sqlite", SITE)
        self.desk = Desk(self.store, Policy.from_text(policy), self.examine)
        self.examined: list[str] = []

    def offer(self, run: str, *changes: str) -> RunPlan:
        plan = checked(*changes)
        verdict = self.verdict(plan)
        body = json.dumps(list(changes)).encode()
        self.store.consents.note(run, plan.digest, verdict.answer, body, verdict.clauses)
        return plan

    def verdict(self, plan: RunPlan) -> Verdict:
        spent = self.store.spent(plan.population)
        return judge(self.desk.policy, plan.site(SITE), plan, spent=spent, approved=self.store.consents.approved())

    def examine(self, offered: Offered) -> tuple[RunPlan, Verdict]:
        self.examined.append(offered.run)
        plan = checked(*json.loads(offered.offer))
        if plan.digest != offered.digest:
            raise PlanError.of("the plan", needs=offered.digest[:12], got=plan.digest[:12], hint="Offer it again")
        return plan, self.verdict(plan)


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    found = Office(tmp_path)
    yield found
    found.store.close()


def test_what_waits_is_shown_in_full_within_80_columns(
    office: Office, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    plan = office.offer("first")
    office.offer("second", "privacy.epsilon=3")
    site_consent.pending(office.desk, as_json=False)
    shown = capsys.readouterr().out
    for words in (
        "waiting", plan.digest, "A 4\u202f000, B 3\u202f000", "cardiology", "age, pressure", "to predict disease",
        "this site answers at most 20", "epsilon 1 at delta 1e-6 for one record", "epsilon against world", "left after it",
        "of 3, the policy's limit", "privacy.max_epsilon_run", "consilia site approve", "refused: run second",
    ):  # fmt: skip
        assert words in shown, words
    assert max(map(len, shown.splitlines())) <= 80
    assert office.examined == ["first"]  # what was refused is not built


def test_the_same_as_one_document(office: Office, capsys: pytest.CaptureFixture[str]) -> None:
    plan = office.offer("first")
    office.offer("second", "privacy.epsilon=3")
    site_consent.pending(office.desk, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert [one["digest"] for one in told["waiting"]] == [plan.digest]
    assert {one["key"] for one in told["waiting"][0]["policy"]} >= {"approval.mode", "privacy.max_epsilon_set"}
    assert told["refused"][0]["clauses"] == ["policy key privacy.max_epsilon_run: 1; the plan asks epsilon 2.99989"]


def test_an_approval_is_of_one_digest_and_can_be_taken_back(office: Office, capsys: pytest.CaptureFixture[str]) -> None:
    plan, other = office.offer("first"), office.offer("second", "run.seed=1")
    site_consent.approve(office.desk, plan.digest[:16], sure=lambda: False, as_json=False)
    assert office.verdict(plan).answer == "waiting"
    site_consent.approve(office.desk, plan.digest[:16], sure=lambda: True, as_json=False)
    assert office.verdict(plan).answer == "accepted"
    assert office.verdict(other).answer == "waiting"
    assert plan.digest in capsys.readouterr().out
    site_consent.withdraw(office.store, plan.digest[:16])
    assert office.verdict(plan).answer == "waiting"


def test_what_cannot_be_approved_is_named(office: Office) -> None:
    refused = office.offer("second", "privacy.epsilon=3")
    with pytest.raises(PlanError, match="An approval opens no clause"):
        site_consent.approve(office.desk, refused.digest, sure=lambda: True, as_json=False)
    assert office.examined == []
    for digest in ("abcd", "0" * 64):
        with pytest.raises(PlanError, match="8 or more digits"):
            site_consent.approve(office.desk, digest, sure=lambda: True, as_json=False)
    with pytest.raises(PlanError, match="Approved are: none"):
        site_consent.withdraw(office.store, "0" * 64)
    assert office.store.consents.approved() == frozenset()


def test_a_budget_spent_since_the_offer_closes_it(tmp_path: Path) -> None:
    office = Office(tmp_path, "[privacy]\nmax_epsilon_set = 1.5")
    plan = office.offer("first")
    half = plan.site(SITE)
    from consilia.dp.ledger import Allotment

    office.store.allot(
        Allotment("earlier", plan.population, half.events, 1.0, 1e-6, half.adjacency, half.against),
        fingerprint="f",
        limit=None,
    )
    with pytest.raises(PlanError, match=r"max_epsilon_set: 1.5; the plan asks epsilon 0.99.* after epsilon 1"):
        site_consent.approve(office.desk, plan.digest, sure=lambda: True, as_json=False)
    office.store.close()


def test_the_policy_is_checked_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(policy_template())
    site_consent.policy(path, as_json=False)
    shown = capsys.readouterr().out
    assert "max_epsilon_run" in shown
    assert "1e-05" in shown
    site_consent.policy(path, as_json=True)
    assert json.loads(capsys.readouterr().out)["privacy"]["max_epsilon_set"] == 3.0
    path.write_text("[privacy]\nmax_epsilon_rum = 3\n")
    with pytest.raises(PlanError, match="max_epsilon_run"):
        site_consent.policy(path, as_json=False)
