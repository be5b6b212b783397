"""The coordinator's service: every run ends, one after the other, whatever sites, disks and operators do meanwhile."""

import json
import stat
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from tests.federation.hospitals import HOSPITALS, POLICY, found, plan_text
from tests.federation.local import consortium

from consilia.core.errors import StoreError
from consilia.federation import coordinator_service
from consilia.federation.proposal import Proposal

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
OPEN = POLICY.replace("[privacy]", "[privacy]\nmax_epsilon_run = inf\nmax_epsilon_set = inf")


def test_a_run_leaves_its_model_result_and_journal(tmp_path: Path) -> None:
    with consortium(found(tmp_path), HOSPITALS) as everyone:
        assert everyone.ran("heart-1", plan_text())["status"] == "done"
        [folder] = everyone.ended
        assert folder == everyone.home / "runs" / "heart-1"
        assert {path.name for path in folder.iterdir()} >= {"model.safetensors", "result.json", "journal.sqlite"}
        assert json.loads((folder / "result.json").read_text()) == everyone.service.result("heart-1")
        assert everyone.service.progress == {}


def test_a_result_that_was_not_handed_over_is_at_the_next_start(tmp_path: Path) -> None:
    with consortium(found(tmp_path), HOSPITALS) as everyone:
        everyone.ran("heart-1", plan_text())
        (everyone.home / "runs" / "heart-1" / "journal.sqlite").unlink()  # killed after its last transaction
        everyone.ended.clear()
        everyone.work()
        assert [folder.name for folder in everyone.ended] == ["heart-1"]
        everyone.work()
        assert len(everyone.ended) == 1  # once


def test_no_result_where_nothing_began(tmp_path: Path) -> None:
    with consortium(found(tmp_path), HOSPITALS) as everyone:
        assert everyone.service.result("heart-1") is None
        everyone.submit("heart-1", plan_text())
        everyone.service.stop("heart-1", by="olga")
        everyone.work()
        ended = everyone.run("heart-1")
        assert (ended["status"], ended["reason"], ended["round"]) == ("stopped", "stopped by an operator", 0)
        assert everyone.service.result("heart-1") is None
        assert everyone.ended == []


def test_a_run_that_waits_lets_the_next_one_pass(tmp_path: Path) -> None:
    world = found(tmp_path, policy=OPEN)
    policy = tmp_path / "Hungary" / "policy.toml"
    policy.write_text(OPEN.replace('"never"', '"always"'))
    with consortium(world, HOSPITALS) as everyone:
        everyone.submit("waits-1", plan_text())
        everyone.service._look_after(everyone.service.queue.open()[0], Event())
        assert everyone.run("waits-1")["sites"][1]["answer"] == "waiting"
        policy.write_text(OPEN)
        everyone.submit("passes-1", plan_text(rounds=3))
        everyone.service._look_after(everyone.service.queue.open()[1], Event())
        assert everyone.run("passes-1")["status"] == "done"
        assert everyone.run("waits-1")["status"] == "queued"
        everyone.work()
        assert everyone.run("waits-1")["status"] == "done"


def test_a_run_that_nobody_agrees_to_ends(tmp_path: Path) -> None:
    with consortium(found(tmp_path), HOSPITALS, seconds=0.5) as everyone:
        everyone.hub.away = {"Hungary"}
        ended = everyone.ran("heart-1", plan_text())
        assert ended["status"] == "failed"
        first, *rest = ended["reason"].splitlines()
        assert first.rstrip().startswith("not enough sites agreed in")
        assert "Hungary: never connected" in rest


def test_a_store_that_is_away_costs_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    times = 0
    advance = Proposal.advance

    def fails_once(self: Proposal, *arguments: Any) -> None:
        nonlocal times
        times += 1
        if times == 1:
            raise StoreError.of("the store", needs="room", got="none", hint="")
        advance(self, *arguments)

    monkeypatch.setattr(Proposal, "advance", fails_once)
    with consortium(found(tmp_path), HOSPITALS) as everyone:
        monkeypatch.setattr(coordinator_service, "_STEP", 0.01)
        assert everyone.ran("heart-1", plan_text())["status"] == "done"
    assert "run heart-1 waits: the store needs room; got none." in caplog.text


def test_a_fault_of_the_program_ends_its_run_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advance = Proposal.advance

    def fails(self: Proposal, *arguments: Any) -> None:
        if self.run == "bad-1":
            raise RuntimeError("patient 4711")
        advance(self, *arguments)

    monkeypatch.setattr(Proposal, "advance", fails)
    with consortium(found(tmp_path), HOSPITALS) as everyone:
        everyone.submit("bad-1", plan_text())
        assert everyone.ran("good-1", plan_text())["status"] == "done"
        bad = everyone.run("bad-1")
        assert (bad["status"], bad["reason"]) == ("failed", "an unexpected failure (RuntimeError)")


def test_a_run_goes_on_in_a_new_service(tmp_path: Path) -> None:
    world = found(tmp_path, policy=OPEN)
    with consortium(world, HOSPITALS) as everyone:
        everyone.submit("heart-1", plan_text(rounds=4))
        stop, ticks = Event(), []
        record = coordinator_service.Progress.note

        def note(self: coordinator_service.Progress, one: dict[str, Any]) -> None:
            ticks.append(one["round"])
            if len(ticks) == 2:
                stop.set()
            record(self, one)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(coordinator_service.Progress, "note", note)
            everyone.service.serve(stop)
        assert ticks == [1, 2]
        assert everyone.run("heart-1")["status"] == "running"
    with consortium(world, HOSPITALS) as later:
        later.work()
        ended = later.run("heart-1")
        assert (ended["status"], ended["round"]) == ("done", 4)


def test_what_holds_keys_rows_or_charges_is_its_owners_alone(tmp_path: Path) -> None:
    world = found(tmp_path)
    with consortium(world, HOSPITALS) as everyone:
        everyone.ran("heart-1", plan_text())
    looked = 0
    for path in tmp_path.rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        if path.suffix in (".key", ".sqlite", ".jsonl"):
            looked += 1
            assert mode & 0o077 == 0, (path, oct(mode))
        if path.parent == tmp_path:  # a member's folder: nobody else looks into it
            assert mode == 0o700, (path, oct(mode))
    assert looked >= 2 * len(everyone.sites) + 4
