"""Pattern K: whatever is killed, restored or started twice, a ledger never shows less than was released."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.privacy.lab import FEDSGD, SITES, Lab, Sent, plan_of, privacy

import consilia
from consilia.core.errors import BudgetExceeded, StoreError
from consilia.core.update import ProtocolMessage
from consilia.core.wire import decode
from consilia.federation.conduct import RESULT
from consilia.federation.session import JOURNAL
from consilia.plan.schema import Plan
from consilia.store.ledger_store import SiteStore

LabMaker = Callable[..., Lab]
ROUNDS = 4


class KilledError(Exception):
    """Stands for the end of a process: nothing after it runs."""


def kinds(home: Path, site: str, population: str = "heart") -> list[str]:
    with SiteStore.open(home / "sites" / f"{site}.sqlite", site) as store:
        store.verify(population)
        return [str(entry.kind) for entry in store.entries(population)]


def charged(home: Path) -> dict[str, int]:
    return {site: kinds(home, site).count("reserve") for site in SITES}


def models_sent(frames: list[Sent]) -> set[bytes]:
    found: set[bytes] = set()
    for sent in frames:
        task = decode(sent.frame, who="test")
        assert isinstance(task, ProtocolMessage)
        if task.kind in ("train", "evaluate"):
            found.add(bytes(task.payload))
    return found


@pytest.mark.parametrize("unit", ["site", "record"])
def test_noise_at_the_server_is_drawn_once_for_a_round(unit: str, lab: LabMaker) -> None:
    """The noised model goes to the sites for scoring. Killed then and resumed, the coordinator must not noise the same sum
    again: two such models tell more than the one that was charged.
    """
    training = FEDSGD if unit == "record" else 'batch = "full"\nlocal_steps = 2'
    plan = plan_of(rounds=2, training=training, protect=privacy(unit, "server", z=2.0),
                   evaluation='metrics = "public"', reproducible=False)  # fmt: skip
    first = lab(plan)
    send = first.wire.send

    def dies(site: str, frame: bytes) -> None:
        send(site, frame)
        task = decode(frame, who="test")
        assert isinstance(task, ProtocolMessage)
        if (task.kind, task.round, site) == ("evaluate", 1, SITES[1]):
            raise KilledError

    first.wire.send = dies  # type: ignore[method-assign]
    with pytest.raises(KilledError):
        first.coordinator.train()
    first.close()
    second = lab(plan, resume=True)
    second.train()
    assert [record["status"] for record in second.journal.records()] == ["counted"] * 2
    # The first model, that of round 1 and that of round 2: no second version of round 1 was ever seen.
    assert len(models_sent(first.wire.down + second.wire.down)) == 3
    assert charged(second.home) == dict.fromkeys(SITES, 2)


def small(*, ledger: str = "") -> Plan:
    return plan_of(rounds=ROUNDS, protect=privacy("record", "site", z=20.0), reproducible=False, ledger=ledger)


def stop_after(rounds: int) -> Callable[[dict[str, Any]], None]:
    def on_round(record: dict[str, Any]) -> None:
        if record["round"] == rounds:
            raise KilledError

    return on_round


def test_a_journal_restored_from_an_old_copy_gives_no_budget_back(place: Path) -> None:
    out, old = place / "run", place / "old"
    with pytest.raises(KilledError):
        consilia.run(small(), out=out, on_round=stop_after(1))
    shutil.copytree(out, old)
    with pytest.raises(KilledError):
        consilia.resume(out, on_round=stop_after(3))
    assert charged(place / "home") == dict.fromkeys(SITES, 3)
    shutil.rmtree(out)
    shutil.copytree(old, out)
    result = consilia.resume(out)  # asks for rounds 2 and 3 once more
    # Every site answered what its ledger had left, and not one release beyond the allotment.
    assert charged(place / "home") == dict.fromkeys(SITES, ROUNDS)
    answers = [len(record["answered"]) for record in result.records]
    # Round 2 is before what the sites answered last, and round 3 was answered for another model: both are refused.
    assert sum(answers) <= 4 * (ROUNDS - 1)
    assert all(why.startswith("refused: ") for record in result.records for why in record["dropped"].values())
    assert result.summary["epsilon"] == consilia.check(small()).epsilon
    # The coordinator learns from the sites what they charged: its display does not forget the lost rounds.
    whole = [record["epsilon_spent"] for record in result.records]
    assert whole == sorted(whole)
    assert whole[-1] >= consilia.account(sampling_rate=1.0, noise_multiplier=20.0, steps=4, delta=1e-3)["epsilon"]


def test_a_run_resumed_twice_charges_nothing_more(place: Path) -> None:
    out = place / "run"
    with pytest.raises(KilledError):
        consilia.run(small(), out=out, on_round=stop_after(2))
    first = consilia.resume(out)
    entries = {site: kinds(place / "home", site) for site in SITES}
    second = consilia.resume(out)
    assert second.summary == first.summary
    assert np.array_equal(second.model, first.model)
    assert {site: kinds(place / "home", site) for site in SITES} == entries
    assert charged(place / "home") == dict.fromkeys(SITES, ROUNDS)


def test_a_run_is_resumed_by_one_process_at_a_time(place: Path) -> None:
    out = place / "run"
    seen: list[str] = []

    def meanwhile(_: dict[str, Any]) -> None:
        with pytest.raises(StoreError, match="another process"):
            consilia.resume(out)
        seen.append("refused")

    consilia.run(small(), out=out, on_round=meanwhile)
    assert seen == ["refused"] * ROUNDS
    assert charged(place / "home") == dict.fromkeys(SITES, ROUNDS)


def test_runs_on_one_population_add_up_and_the_limit_refuses_before_anything_starts(place: Path) -> None:
    one = consilia.check(small()).epsilon
    assert one is not None
    plan = small(ledger=f"max_epsilon = {2.5 * one}")
    for name in ("first", "second"):
        assert consilia.run(plan, out=place / name).summary["status"] == "done"
    for site in SITES:
        with SiteStore.open(place / "home" / "sites" / f"{site}.sqlite", site) as store:
            ((epsilon, delta),) = store.spent("heart").values()
            assert epsilon == pytest.approx(2 * one)
            assert delta == pytest.approx(2e-3)
    before = {site: kinds(place / "home", site) for site in SITES}
    with pytest.raises(BudgetExceeded, match="over all runs"):
        consilia.run(plan, out=place / "third")
    assert {site: kinds(place / "home", site) for site in SITES} == before
    assert not any((place / "third" / name).exists() for name in (JOURNAL, RESULT, "model.safetensors"))
    with pytest.raises(StoreError, match="a run"):
        consilia.resume(place / "third")


def test_a_run_stopped_early_keeps_its_whole_allotment_spent(place: Path) -> None:
    one = consilia.check(small()).epsilon
    assert one is not None
    plan = small(ledger=f"max_epsilon = {1.5 * one}")
    with pytest.raises(KilledError):
        consilia.run(plan, out=place / "first", on_round=stop_after(1))
    with pytest.raises(BudgetExceeded):
        consilia.run(plan, out=place / "second")
    assert consilia.resume(place / "first").summary["status"] == "done"


def test_two_runs_at_once_on_one_population_share_its_budget(lab: LabMaker) -> None:
    plan = small()
    one, two = lab(plan, run="one"), lab(plan, run="two")  # the same folder: the same ledgers
    for _ in range(ROUNDS):
        one.round()
        two.round()
    assert charged(one.home) == dict.fromkeys(SITES, 2 * ROUNDS)
    for site in SITES:
        with SiteStore.open(one.home / "sites" / f"{site}.sqlite", site) as store:
            assert {run: sum(n for _, n in store.charged(run)) for run in ("one", "two")} == {"one": 4, "two": 4}
            ((epsilon, _),) = store.spent("heart").values()
            assert one.prepared.run_plan.epsilon is not None
            assert epsilon == pytest.approx(2 * one.prepared.run_plan.epsilon)
    # Neither run may charge more, whatever the other did.
    one.coordinator.state.round = two.coordinator.state.round = ROUNDS - 1
    for sent in (one, two):
        sent.coordinator.state.model = sent.coordinator.state.model + 1  # another model: not a resend
        assert sent.round() is None
    assert charged(one.home) == dict.fromkeys(SITES, 2 * ROUNDS)


def test_a_second_run_admitted_while_the_first_runs_is_refused_at_the_limit(lab: LabMaker) -> None:
    one = lab(small(), run="one")
    assert one.prepared.run_plan.epsilon is not None
    plan = small(ledger=f"max_epsilon = {1.5 * one.prepared.run_plan.epsilon}")
    one.round()
    with pytest.raises(BudgetExceeded):
        lab(plan, run="two")
    assert charged(one.home) == dict.fromkeys(SITES, 1)
    while one.coordinator.state.round < ROUNDS:
        assert one.round() is not None
    assert charged(one.home) == dict.fromkeys(SITES, ROUNDS)


def test_a_run_that_one_ledger_refuses_costs_the_others_nothing(place: Path) -> None:
    """Refused before anything starts: a run that never was must not use up budget where it would have fitted."""
    one = consilia.check(small()).epsilon
    assert one is not None
    plan = small(ledger=f"max_epsilon = {1.5 * one}")
    only_last = plan.model_copy(update={"sites": plan.sites.model_copy(update={"only": [SITES[-1], SITES[-2]]})})
    consilia.run(only_last, out=place / "first")
    for name in ("second", "third"):
        with pytest.raises(BudgetExceeded):
            consilia.run(plan, out=place / name)
    for site in SITES[:-2]:
        assert kinds(place / "home", site) == []
    others = plan.model_copy(update={"sites": plan.sites.model_copy(update={"only": list(SITES[:-2])})})
    assert consilia.run(others, out=place / "fourth").summary["status"] == "done"
