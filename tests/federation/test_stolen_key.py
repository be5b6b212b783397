"""A coordinator whose key was stolen: it signs what it likes and sends what it likes, and no site exceeds its policy.

The thief speaks to whole sites with real ledgers, as the coordinator's connection does; what the sites answer to is all here.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from tests.federation.hospitals import HOSPITALS, POLICY, found, services, wired
from tests.rounds.traps import imprint

from consilia.core.update import ProtocolMessage, Release, Vector
from consilia.core.wire import decode, encode, pack_vector
from consilia.federation.assemble import Assembled
from consilia.federation.offer import Offer
from consilia.federation.proposal import Proposal
from consilia.federation.site_service import SiteService
from consilia.learning.architecture import hidden_layers
from consilia.plan.load import from_text
from consilia.plan.schema import Plan
from consilia.plan.travelling import travelling
from consilia.store.ledger_store import SiteStore

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
SITE = "Hungary"
PLAN = """
[data]
source = "heart"
split = "exact"
test_fraction = 0.34
[sites]
only = ["Cleveland", "Hungary", "Switzerland"]
counts = "public"
[model]
name = "mlp"
hidden = [16]
[training]
algorithm = "fedsgd"
batch = "full"
rounds = 3
server_learning_rate = 0.05
[privacy]
unit = "record"
epsilon = {epsilon}
delta = 1e-3
delta_reason = "a public table"
clip_norm = 1.0
[evaluation]
metrics = "public"
"""


class Thief:
    """Whoever holds the coordinator's key."""

    def __init__(self, sites: Mapping[str, SiteService]) -> None:
        self.sites = sites
        self.site = sites[SITE]

    @property
    def store(self) -> SiteStore:
        return self.site._store

    def offer(self, run: str, epsilon: float = 1.0, **changes: str) -> tuple[Assembled, str]:
        """Offer a plan as an honest coordinator would; return it with what the site answers."""
        one = Proposal(run, plan(epsilon, **changes), HOSPITALS, None, patience=0.0)
        one.advance(wired(self.sites), HOSPITALS)
        assert one.assembled is not None, one.enrolment.reasons
        return one.assembled, one.enrolment.answers.get(SITE, "")

    def send(
        self, kind: str, run: str, number: int, *, digest: str, model: Vector | None = None, **body: object
    ) -> bytes:
        told = {"plan": digest, "run": run, "counted": 0, **body}
        task = ProtocolMessage(kind, SITE, number, told, b"" if model is None else pack_vector(model))  # type: ignore[arg-type]
        return self.site.handle(encode(task))

    def train(self, run: str, number: int, made: Assembled, model: Vector | None = None) -> Release | ProtocolMessage:
        sent = made.initial if model is None else model
        return decode(self.send("train", run, number, digest=made.run_plan.digest, model=sent), who="test")

    def charged(self, run: str) -> int:
        return sum(count for _, count in self.store.charged(run))

    def spent(self) -> float:
        return sum(epsilon for epsilon, _ in self.store.spent("heart").values())


def plan(epsilon: float = 1.0, **changes: str) -> Plan:
    overrides = [f"{key.replace('__', '.')}={value}" for key, value in changes.items()]
    return travelling(from_text(PLAN.format(epsilon=epsilon), overrides))


def refused(answer: Release | ProtocolMessage) -> bool:
    return isinstance(answer, ProtocolMessage) and answer.kind == "refused" and set(answer.body) <= {"error", "run"}


@pytest.fixture
def thief(tmp_path: Path) -> Iterator[Thief]:
    with services(found(tmp_path)) as sites:
        yield Thief(sites)


def test_more_rounds_than_were_agreed_to(thief: Thief) -> None:
    made, answer = thief.offer("run")
    assert answer == "accepted"
    answers = [thief.train("run", number, made) for number in range(1, 20)]
    assert [isinstance(one, Release) for one in answers] == [True] * 3 + [False] * 16
    assert all(refused(one) for one in answers[3:])
    assert thief.charged("run") == 3
    assert thief.spent() <= 1.0


def test_replays_give_the_same_bytes_and_old_rounds_nothing(thief: Thief) -> None:
    made, _ = thief.offer("run")
    digest, model = made.run_plan.digest, made.initial
    first = thief.send("train", "run", 1, digest=digest, model=model)
    assert thief.send("train", "run", 1, digest=digest, model=model) == first
    near = (model + 1e-6).astype(np.float32)
    assert refused(thief.train("run", 1, made, near))  # the same round with another model
    assert isinstance(thief.train("run", 2, made), Release)
    assert refused(thief.train("run", 1, made))
    assert thief.charged("run") == 2


@pytest.mark.parametrize("changes", [
    {"training__rounds": "4"}, {"training__server_learning_rate": "0.06"}, {"privacy__clip_norm": "2.0"},
    {"model__hidden": "[17]"},
])  # fmt: skip
def test_another_plan_under_an_accepted_run(thief: Thief, changes: dict[str, str]) -> None:
    made, _ = thief.offer("run")
    other, answer = thief.offer("run", 1.0, **changes)
    assert answer == "refused"
    assert other.run_plan.digest != made.run_plan.digest
    assert refused(thief.train("run", 1, other))
    assert thief.charged("run") == 0
    assert isinstance(thief.train("run", 1, made), Release)  # what was agreed to goes on


def test_less_noise_under_the_same_run_or_the_same_digest(thief: Thief) -> None:
    made, _ = thief.offer("run", epsilon=0.5)
    loud, answer = thief.offer("run", epsilon=1.0)
    assert answer == "refused"
    for offer in (
        Offer("run", loud.run_plan.plan, counts(loud), made.run_plan.digest),
        Offer("new", loud.run_plan.plan, counts(loud), made.run_plan.digest),  # the name of what would be agreed to
    ):
        assert answer_to(thief, offer) == "refused"
    assert thief.store.consents.accepted("new") is None
    assert [isinstance(thief.train("run", number, made), Release) for number in range(1, 5)] == [True] * 3 + [False]
    assert thief.spent() <= 0.5


def test_a_count_that_was_altered_is_another_plan(tmp_path: Path) -> None:
    with services(found(tmp_path, policy=POLICY.replace('"never"', '"always"'))) as sites:
        thief = Thief(sites)
        made, answer = thief.offer("run")
        assert answer == "waiting"
        thief.store.consents.approve(made.run_plan.digest)
        for altered in ({"Cleveland": 10**6}, {SITE: 10**4}, {"Cleveland": 0}, {"Cleveland": -3}, {"ghost": 500}):
            offer = Offer("run", made.run_plan.plan, {**counts(made), **altered}, made.run_plan.digest)
            assert answer_to(thief, offer) != "accepted", altered
        assert answer_to(thief, Offer("run", made.run_plan.plan, counts(made), made.run_plan.digest)) == "accepted"
        assert isinstance(thief.train("run", 1, made), Release)


def test_a_plan_that_waits_or_was_never_offered_trains_on_nothing(tmp_path: Path) -> None:
    with services(found(tmp_path, policy=POLICY.replace('"never"', '"always"'))) as sites:
        thief = Thief(sites)
        made, answer = thief.offer("run")
        assert answer == "waiting"
        assert refused(thief.train("run", 1, made))
        assert refused(thief.train("never-seen", 1, made))
        assert thief.spent() == 0


def test_a_trapped_model_first_or_in_mid_run(thief: Thief) -> None:
    made, _ = thief.offer("run")
    (layer,) = hidden_layers(made.model.module, made.model.segments)
    trapped = imprint(made.initial, layer)
    assert refused(thief.train("run", 1, made, trapped))
    assert thief.charged("run") == 0
    assert isinstance(thief.train("run", 1, made), Release)
    for number in (2, 3):
        assert refused(thief.train("run", number, made, trapped))
    assert refused(decode(thief.send("evaluate", "run", 1, digest=made.run_plan.digest, model=trapped), who="test"))
    assert thief.charged("run") == 1


def test_a_run_that_was_closed_stays_closed_also_after_a_restart(tmp_path: Path) -> None:
    world = found(tmp_path)
    with services(world) as sites:
        thief = Thief(sites)
        made, _ = thief.offer("run")
        assert isinstance(thief.train("run", 1, made), Release)
        closed = decode(thief.send("close", "run", 5, digest=made.run_plan.digest, status="done"), who="test")
        assert isinstance(closed, ProtocolMessage)
        assert closed.kind == "closed"
    for _ in range(2):
        with services(world) as sites:
            thief = Thief(sites)
            assert refused(thief.train("run", 2, made))
            _, answer = thief.offer("run")
            assert answer != "accepted"
            assert refused(thief.train("run", 2, made))
            assert thief.charged("run") == 1


def test_run_after_run_ends_at_the_policys_sum(thief: Thief) -> None:
    answered = []
    for place in range(6):
        made, answer = thief.offer(f"run-{place}")
        answered.append(answer)
        if answer == "accepted":
            assert isinstance(thief.train(f"run-{place}", 1, made), Release)
    assert answered == ["accepted"] * 3 + ["refused"] * 3
    assert thief.spent() <= 3.0


def test_runs_judged_at_the_same_time_are_held_to_the_sum_by_the_ledger(thief: Thief) -> None:
    offers = [thief.offer(f"run-{place}", run__seed=str(place)) for place in range(6)]
    assert [answer for _, answer in offers] == ["accepted"] * 6  # none has begun yet
    first = [thief.train(f"run-{place}", 1, made) for place, (made, _) in enumerate(offers)]
    assert [isinstance(one, Release) for one in first] == [True] * 3 + [False] * 3
    assert thief.spent() <= 3.0


def test_a_limit_that_a_plan_brings_does_not_outlast_the_stewards(thief: Thief) -> None:
    made, _ = thief.offer("run", ledger__max_epsilon="1.0")
    assert isinstance(thief.train("run", 1, made), Release)
    second, answer = thief.offer("second")
    assert answer == "accepted"
    assert isinstance(thief.train("second", 1, second), Release)


def test_code_that_the_policy_does_not_name_is_not_even_imported(
    thief: Thief, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "imported"
    (tmp_path / "sleeper.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    offer = Offer("run", plan(model__name="sleeper:make"), {}, "")
    task = ProtocolMessage("survey", SITE, 0, offer.body())
    answer = decode(thief.site.handle(encode(task)), who="test")
    assert isinstance(answer, ProtocolMessage)
    assert answer.kind == "refused"
    assert "model.names" in str(answer.body["clauses"])
    assert (
        answer_to(thief, Offer("run", plan(model__name="sleeper:make"), dict.fromkeys(HOSPITALS, 100), "0" * 64))
        == "refused"
    )
    assert not mark.exists()
    assert "sleeper" not in sys.modules


def test_another_name_for_the_data_set_is_no_other_budget(thief: Thief) -> None:
    offer = Offer("run", plan(sites__population="cardiology"), dict.fromkeys(HOSPITALS, 100), "0" * 64)
    assert answer_to(thief, offer) == "refused"
    [offered] = thief.store.consents.all()
    assert offered.clauses == ("site.toml has no section [data.cardiology]",)


def counts(made: Assembled) -> dict[str, int]:
    return {terms.name: terms.count for terms in made.run_plan.sites}


def answer_to(thief: Thief, offer: Offer) -> object:
    answer = decode(thief.site.handle(encode(ProtocolMessage("offer", SITE, 0, offer.body()))), who="test")
    assert isinstance(answer, ProtocolMessage)
    return answer.body.get("answer", answer.kind)
