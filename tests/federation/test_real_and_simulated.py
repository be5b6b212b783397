"""Real sites and simulated ones are the same code: in the reproducible mode they come to the same model, bit for bit."""

from pathlib import Path

import pytest
from tests.federation.hospitals import HOSPITALS, POLICY, found, plan_text, services, wired

import consilia
from consilia.core.canonical import digest_bytes
from consilia.federation.conduct import conduct, first_state, pin
from consilia.federation.means import Means
from consilia.federation.proposal import Proposal
from consilia.plan.load import from_text
from consilia.plan.travelling import travelling
from consilia.rounds.state import to_pieces
from consilia.store.journal import Journal

OPEN = POLICY.replace("[privacy]", "[privacy]\nmax_epsilon_run = inf\nmax_epsilon_set = inf")


def test_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = plan_text(rounds=3, reproducible=True)
    monkeypatch.setenv("CONSILIA_HOME", str(tmp_path / "simulated"))
    simulated = consilia.run(from_text(text), out=tmp_path / "run")
    world = found(tmp_path / "world", policy=OPEN)
    with services(world) as sites:
        transport = wired(sites)
        one = Proposal("heart-1", travelling(from_text(text)), HOSPITALS, None, patience=0.0)
        one.advance(transport, HOSPITALS)
        assert one.ready(), one.enrolment.reasons
        assembled = one.assembled
        assert assembled is not None
        pin(assembled.run_plan.plan, assembled.model.dim)
        state = first_state(assembled)
        coordinator = world.load("hub")
        with Journal.create(
            tmp_path / "journal.sqlite",
            run="heart-1",
            plan_json="{}",
            digest=assembled.run_plan.digest,
            state=to_pieces(state),
        ) as journal:
            means = Means(transport, coordinator.book.sites, coordinator.identity.signing)
            real = conduct(assembled, means, journal, state, tmp_path, None)
    assert real.summary["status"] == "done"
    assert real.summary["plan_digest"] == simulated.summary["plan_digest"]
    assert digest_bytes(real.model.tobytes()) == digest_bytes(simulated.model.tobytes())
    assert real.summary["accuracy"] == simulated.summary["accuracy"]
