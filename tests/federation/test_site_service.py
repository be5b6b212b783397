"""A real site: what it agrees to, what it refuses, and that nothing else moves it."""

import json
from pathlib import Path

import pytest
from tests.federation.hospitals import HOSPITALS, POLICY, found, plan_text, services, wired

from consilia.core.canonical import Json
from consilia.core.update import ProtocolMessage
from consilia.core.wire import decode, encode
from consilia.data.builtin import heart
from consilia.federation.assemble import RowShape, assemble
from consilia.federation.offer import Offer
from consilia.federation.proposal import Proposal
from consilia.plan.load import from_text
from consilia.plan.travelling import travelling

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")


def proposal(text: str, run: str = "heart-1") -> Proposal:
    return Proposal(run, travelling(from_text(text)), HOSPITALS, None, patience=0.0)


def test_sites_that_agree_make_a_run(tmp_path: Path) -> None:
    with services(found(tmp_path)) as sites:
        one = proposal(plan_text())
        one.advance(wired(sites), HOSPITALS)
        assert one.enrolment.answers == dict.fromkeys(HOSPITALS, "accepted")
        assert one.ready()
        assert one.hopeless() is None
        for site in sites.values():
            assert site._store.allotments("heart") == []  # agreeing charges nothing


@pytest.mark.parametrize(
    ("policy", "clause"),
    [
        (POLICY.replace("[privacy]", "[privacy]\nmax_epsilon_run = 0.5"), "privacy.max_epsilon_run"),
        (POLICY + '[secure_sum]\nmodes = ["rlwe"]\n', "secure_sum.modes"),
        (POLICY + '[model]\nnames = ["mlp"]\n', "model.names"),
        (POLICY + "[sites]\nleast = 4\n", "sites.least"),
        ("", "evaluation.metrics"),
    ],
)
def test_a_plan_outside_the_policy_is_refused_with_the_clause(tmp_path: Path, policy: str, clause: str) -> None:
    world = found(tmp_path)
    (tmp_path / "Hungary" / "policy.toml").write_text(policy)
    with services(world) as sites:
        one = proposal(plan_text())
        one.advance(wired(sites), HOSPITALS)
        one.advance(wired(sites), HOSPITALS)
        assert one.enrolment.answers["Hungary"] == "refused"
        assert clause in one.enrolment.reasons["Hungary"]
        assert not one.ready()
        assert clause in str(one.hopeless())


def test_a_steward_approves_a_waiting_plan(tmp_path: Path) -> None:
    world = found(tmp_path, policy=POLICY.replace('"never"', '"always"'))
    with services(world) as sites:
        one = proposal(plan_text())
        one.advance(wired(sites), HOSPITALS)
        assert one.enrolment.answers == dict.fromkeys(HOSPITALS, "waiting")
        assert not one.ready()
        assert one.assembled is not None
        for site in sites.values():
            [waits] = site._store.consents.all()
            assert (waits.answer, waits.digest) == ("waiting", one.assembled.run_plan.digest)
            site._store.consents.approve(waits.digest)
        one.clock = lambda: 1e9  # it is asked again after a while
        one.advance(wired(sites), HOSPITALS)
        assert one.ready()


def test_a_run_that_nobody_agreed_to_trains_nothing(tmp_path: Path) -> None:
    with services(found(tmp_path)) as sites:
        site = sites["Cleveland"]
        task = ProtocolMessage("train", "Cleveland", 1, {"run": "never-seen", "plan": "0" * 64})
        answer = decode(site.handle(encode(task)), who="test")
        assert isinstance(answer, ProtocolMessage)
        assert (answer.kind, answer.body["error"]) == ("refused", "ProtocolError")


def test_another_plan_under_a_known_run_is_refused(tmp_path: Path) -> None:
    with services(found(tmp_path)) as sites:
        proposal(plan_text()).advance(wired(sites), HOSPITALS)
        other = proposal(plan_text(rounds=3))
        other.advance(wired(sites), HOSPITALS)
        assert other.enrolment.answers == dict.fromkeys(HOSPITALS, "refused")
        assert "agreed to with another plan" in other.enrolment.reasons["Cleveland"]


def test_numbers_that_give_another_plan_are_refused(tmp_path: Path) -> None:
    with services(found(tmp_path)) as sites:
        one = proposal(plan_text())
        one.advance(wired(sites), HOSPITALS)
        assert one.assembled is not None
        honest = one.offer()
        for forged in (
            Offer("heart-2", honest.plan, {**honest.counts, "Hungary": 10}, honest.digest),
            Offer("heart-2", honest.plan, {**honest.counts, "ghost": 10**6}, honest.digest),
            Offer("heart-2", honest.plan, honest.counts, "0" * 64),
        ):
            task = ProtocolMessage("offer", "Cleveland", 0, forged.body())
            answer = decode(sites["Cleveland"].handle(encode(task)), who="test")
            assert isinstance(answer, ProtocolMessage)
            assert answer.body.get("answer") != "accepted"
            assert sites["Cleveland"]._store.consents.accepted("heart-2") is None


def test_a_run_ends_here_only_when_the_site_itself_closed_it(tmp_path: Path) -> None:
    with services(found(tmp_path)) as sites:
        one = proposal(plan_text())
        one.advance(wired(sites), HOSPITALS)
        site, digest = sites["Hungary"], one.offer().digest
        for plan, kind, open_then in (("0" * 64, "refused", True), (digest, "closed", False)):
            body: dict[str, Json] = {"run": "heart-1", "plan": plan, "status": "done"}
            answer = decode(site.handle(encode(ProtocolMessage("close", "Hungary", 4, body))), who="test")
            assert isinstance(answer, ProtocolMessage)
            assert answer.kind == kind
            assert (site._store.consents.accepted("heart-1") is not None) == open_then


@pytest.mark.parametrize("mode", ["masks", "none"])
def test_sites_that_a_coordinator_made_up_do_not_count(tmp_path: Path, mode: str) -> None:
    counts = dict.fromkeys(("Hungary", "ghost a", "ghost b", "ghost c"), 400)
    registered = "[sites.counts]\n" + "".join(f'"{name}" = {count}\n' for name, count in counts.items())
    text = plan_text().replace('counts = "public"', registered).replace(f"only = {json.dumps(HOSPITALS)}", "")
    if mode == "none":
        text = text.replace('mode = "masks"', 'mode = "none"').replace('"distributed"', '"site"')
    plan = travelling(from_text(text))
    with services(found(tmp_path)) as sites:
        site = sites["Hungary"]
        shape = RowShape(tuple(heart.load().input_shape), 2)
        digest = assemble(plan, shape, counts, None).run_plan.digest  # all else is as it should be
        task = ProtocolMessage("offer", "Hungary", 0, Offer("heart-1", plan, counts, digest).body())
        answer = decode(site.handle(encode(task)), who="test")
        assert isinstance(answer, ProtocolMessage)
        assert answer.body["answer"] == "refused"
        assert "ghost a, ghost b, ghost c" in str(answer.body["clauses"])
        assert site._store.consents.accepted("heart-1") is None


def test_of_a_fault_in_a_policy_the_operator_learns_the_kind_and_the_steward_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = found(tmp_path)
    with services(world) as sites:
        policy = tmp_path / "Hungary" / "policy.toml"
        policy.write_text('[privacy]\nmax_delta = "for patient 4711"\n')  # while the site runs
        one = proposal(plan_text())
        one.advance(wired(sites), HOSPITALS)
    assert one.enrolment.answers["Hungary"] == "refused"
    assert one.enrolment.reasons["Hungary"] == "its policy.toml cannot be read; its log says more (PolicyError)"
    assert "policy key privacy.max_delta needs a number" in caplog.text
    first, *rest = str(one.hopeless()).splitlines()
    assert first == "2 of 3 sites may take part, all must, as the plan registers no numbers of rows:"
    assert rest == [f"Hungary: {one.enrolment.reasons['Hungary']}"]
