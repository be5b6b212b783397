"""A coordinator that was asked to rehearse puts the faults between itself and its sites, in rounds and nowhere else."""

import time
from pathlib import Path

import pytest
from tests.federation.hospitals import HOSPITALS, POLICY, found, plan_text
from tests.federation.processes import free_port, processes, until

from consilia.core.errors import PlanError
from consilia.federation.config import CoordinatorConfig, Rehearsal, read_config
from consilia.federation.coordinator_process import rehearsed
from consilia.transport.faults import Faulty
from consilia.transport.link.hub import Hub

OPEN = POLICY.replace("[privacy]", "[privacy]\nmax_epsilon_run = inf\nmax_epsilon_set = inf")


def test_only_who_asks_for_faults_has_them(tmp_path: Path) -> None:
    hub = Hub(tmp_path, heartbeat=1.0, upload_floor=1.0, clock=time.monotonic)
    try:
        assert rehearsed(hub, None) is hub
        assert isinstance(rehearsed(hub, Rehearsal()), Faulty)
        with pytest.raises(PlanError, match="the rates of a rehearsal needs probabilities that add up to at most 1"):
            rehearsed(hub, Rehearsal(drop=0.6, delay=0.6))
    finally:
        hub.close()


def test_a_chance_that_is_none_is_refused_in_words(tmp_path: Path) -> None:
    config = tmp_path / "coordinator.toml"
    config.write_text('listen = "localhost:1"\n[rehearsal]\ndrop = 1.5\nloss = 0.1\n')
    with pytest.raises(PlanError) as caught:
        read_config(config, CoordinatorConfig)
    assert "key rehearsal.drop" in str(caught.value)
    assert "key rehearsal.loss" in str(caught.value)


def test_a_run_whose_every_message_is_lost_fails_and_says_why(tmp_path: Path) -> None:
    port, status = free_port(), free_port()
    found(tmp_path, policy=OPEN, port=port)
    (tmp_path / "hub" / "coordinator.toml").write_text(
        f'listen = "localhost:{port}"\nstatus = "localhost:{status}"\n[rehearsal]\ndrop = 1.0\n'
    )
    plan = tmp_path / "plan.toml"
    plan.write_text(plan_text(rounds=6))
    with processes(tmp_path) as everyone:
        everyone.start("hub", "coordinator")
        for name in HOSPITALS:
            everyone.start(name, "site")
        run = str(until(lambda: everyone.ask("submit", str(plan)).get("run"), what="the submission"))
        ended = everyone.ends(run)
    assert ended["status"] == "failed"
    assert "none up to round 5" in str(ended["reason"]), ended["reason"]
    log = (tmp_path / "hub.log").read_text()
    assert "frames are lost, delayed, repeated, reordered and corrupted on purpose" in log
