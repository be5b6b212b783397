"""A site that hangs holds up neither an operator who stops the run nor a coordinator that is told to end."""

import signal
from pathlib import Path

import numpy as np
import pytest
from tests.federation.hospitals import HOSPITALS, found, plan_text
from tests.federation.processes import Processes, free_port, processes, until
from tests.federation.test_processes import OPEN, model, simulated, submit

__all__ = ["simulated"]
ROUNDS = 4


@pytest.fixture
def everyone(tmp_path: Path) -> Processes:
    port, status = free_port(), free_port()
    found(tmp_path, policy=OPEN, port=port)
    # So long that a hung site is not gone before this test would give up.
    (tmp_path / "hub" / "coordinator.toml").write_text(
        f'listen = "localhost:{port}"\nstatus = "localhost:{status}"\n[timing]\nheartbeat_seconds = 90\n'
    )
    return Processes(tmp_path)


def begin(everyone: Processes, rounds: int) -> str:
    everyone.start("hub", "coordinator")
    for name in HOSPITALS:
        everyone.start(name, "site")
    until(lambda: everyone.ask("status").get("sites"), what="the coordinator")
    run = submit(everyone, plan_text(rounds=rounds, reproducible=True))
    until(lambda: (everyone.run(run).get("round") or 0) >= 1, what="a round")
    everyone.running["Hungary"].send_signal(signal.SIGSTOP)
    return run


def test_stop_does_not_wait_for_a_hung_site(everyone: Processes) -> None:
    with processes(everyone):
        run = begin(everyone, 500)
        everyone.ask("stop", run)
        ended = everyone.ends(run)
        assert ended["status"] == "stopped"
        assert 1 <= ended["round"] < 500


def test_an_ending_coordinator_commits_no_round_without_answers(everyone: Processes, simulated: np.ndarray) -> None:
    with processes(everyone):
        run = begin(everyone, ROUNDS)
        assert everyone.kill("hub", signal.SIGTERM) == 0
        everyone.start("hub", "coordinator")
        everyone.running["Hungary"].send_signal(signal.SIGCONT)
        ended = everyone.ends(run)
        assert (ended["status"], ended["round"]) == ("done", ROUNDS)
        np.testing.assert_array_equal(model(everyone.folder / "hub" / "home" / "runs" / run), simulated)


def test_a_folder_has_one_process(everyone: Processes) -> None:
    with processes(everyone):
        everyone.start("Cleveland", "site")
        until((everyone.folder / "Cleveland" / "home" / "site.lock").exists, what="the first process")
        first = everyone.running.pop("Cleveland")
        everyone.start("Cleveland", "site")
        assert everyone.running.pop("Cleveland").wait(120) == 5
        assert "another process that works in it" in " ".join(everyone.log("Cleveland").split())
        first.kill()
        first.wait(120)
