"""Coordinator and sites as real processes over loopback TLS: a run as it is meant to be, and with everybody killed on the way."""

import json
import signal
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from tests.federation.hospitals import HOSPITALS, POLICY, found, plan_text
from tests.federation.processes import Processes, free_port, processes, until

import consilia
from consilia.plan.load import from_text
from consilia.store.ledger_store import SiteStore

OPEN = POLICY.replace("[privacy]", "[privacy]\nmax_epsilon_run = inf\nmax_epsilon_set = inf")
ROUNDS = 4


def consortium(folder: Path, *, policy: str = OPEN) -> None:
    port, status = free_port(), free_port()
    # Three heartbeats must be longer than a restart, so that a member that is killed loses nothing but time.
    found(folder, policy=policy, port=port)
    (folder / "hub" / "coordinator.toml").write_text(
        f'listen = "localhost:{port}"\nstatus = "localhost:{status}"\n[timing]\nheartbeat_seconds = 15\n'
    )


def model(folder: Path) -> np.ndarray:
    return np.asarray(safetensors.numpy.load_file(folder / "model.safetensors")["vector"])


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    """The model of the same plan in one process."""
    folder = tmp_path_factory.mktemp("simulated")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONSILIA_HOME", str(folder / "home"))
        return np.asarray(
            consilia.run(from_text(plan_text(rounds=ROUNDS, reproducible=True)), out=folder / "run").model
        )


def submit(everyone: Processes, text: str) -> str:
    plan = everyone.folder / "plan.toml"
    plan.write_text(text)
    return str(until(lambda: everyone.ask("submit", str(plan)).get("run"), what="the submission"))


def test_a_run_over_tls_gives_the_simulations_model(tmp_path: Path, simulated: np.ndarray) -> None:
    consortium(tmp_path)
    with processes(tmp_path) as everyone:
        everyone.start("hub", "coordinator")
        for name in HOSPITALS:
            everyone.start(name, "site")
        until(lambda: everyone.ask("status").get("sites"), what="the coordinator")
        run = submit(everyone, plan_text(rounds=ROUNDS, reproducible=True))
        ended = everyone.ends(run)
        assert (ended["status"], ended["round"]) == ("done", ROUNDS)
        np.testing.assert_array_equal(model(tmp_path / "hub" / "home" / "runs" / run), simulated)
        until(lambda: (tmp_path / "hub" / "home" / "runs" / run / "report.html").exists(), what="the report")
        for name in HOSPITALS:
            assert everyone.kill(name, signal.SIGTERM) == 0
            audit = (tmp_path / name / "home" / "audit.jsonl").read_text().splitlines()
            assert {json.loads(line)["what"] for line in audit} >= {
                "surveyed",
                "offered: accepted",
                "sum: advert",
                "closed",
            }
        assert everyone.kill("hub", signal.SIGTERM) == 0


@pytest.mark.slow
def test_everybody_is_killed_on_the_way(tmp_path: Path, simulated: np.ndarray) -> None:
    consortium(tmp_path)
    with processes(tmp_path) as everyone:
        everyone.start("hub", "coordinator", CONSILIA_CRASH="coordinator.after_commit:2")
        everyone.start("Cleveland", "site", CONSILIA_CRASH="site.before_commit:2")
        everyone.start("Hungary", "site", CONSILIA_CRASH="courier.kept:7")
        everyone.start("Switzerland", "site", CONSILIA_CRASH="session.begun.written:4")
        until(lambda: everyone.ask("status").get("sites"), what="the coordinator")
        run = submit(everyone, plan_text(rounds=ROUNDS, reproducible=True))
        left = {"hub": "coordinator", **dict.fromkeys(HOSPITALS, "site")}
        while left:
            name = until(
                lambda: next((one for one in left if everyone.ended(one)), None), what=f"the kill of {sorted(left)}"
            )
            assert everyone.running.pop(name).returncode == -signal.SIGKILL
            everyone.start(name, left.pop(name))
        ended = everyone.ends(run)
        assert (ended["status"], ended["round"]) == ("done", ROUNDS)
        np.testing.assert_array_equal(model(tmp_path / "hub" / "home" / "runs" / run), simulated)
        for name in HOSPITALS:
            with SiteStore.open(tmp_path / name / "home" / "sites" / f"{name}.sqlite", name) as store:
                store.verify("heart")
                kinds = [str(entry.kind) for entry in store.entries("heart")]
                assert kinds.count("reserve") >= kinds.count("commit")
                assert kinds.count("close") == 1
