"""A plan as a job of an NVFlare fleet, in its own proof-of-concept mode: real processes, real keys, the simulation's model."""

import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.federation.fleet.poc import VENV, Poc
from tests.federation.fleet.test_run import OPEN
from tests.federation.hospitals import HOSPITALS, found, plan_text

import consilia
from consilia.federation.fleet.job import write_job
from consilia.plan.load import from_text
from consilia.store.ledger_store import SiteStore

pytestmark = pytest.mark.skipif(
    not (VENV / "bin" / "nvflare").exists() and os.environ.get("CI") != "true",
    reason="NVFlare is not installed beside: make .venv-nvflare/.installed",
)
ROUNDS = 2


@pytest.mark.slow
def test_a_fleet_comes_to_the_simulation_s_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = from_text(plan_text(rounds=ROUNDS, reproducible=True))  # masks, and noise in shares
    monkeypatch.setenv("CONSILIA_HOME", str(tmp_path / "simulated"))
    simulated = consilia.run(plan, out=tmp_path / "run")
    world = found(tmp_path / "world", policy=OPEN)
    fleet = Poc(tmp_path, {name: name.lower() for name in HOSPITALS})
    fleet.settle(world, "hub")
    write_job(plan, fleet.clients, tmp_path / "job", seconds=300)
    with fleet.running():
        ended, results = fleet.run(tmp_path / "job")
    (model,) = results.rglob("model.safetensors")
    assert "FINISHED:COMPLETED" in ended
    assert np.array_equal(load_file(model)["vector"], simulated.model)
    for name in HOSPITALS:
        ledger = fleet.kits / name.lower() / "local" / "consilia" / "home" / "sites" / f"{name}.sqlite"
        with SiteStore.open(ledger, name) as store:
            assert [str(entry.kind) for entry in store.entries("heart")].count("commit") == ROUNDS
            store.verify("heart")
    for log in ("server", *fleet.clients.values()):
        assert "Traceback" not in fleet.log(log)
