"""Whole runs on a cluster of two nodes: the model is that of one process, bit for bit, and every ledger holds the same."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from tests.federation.onray.conftest import TwoNodes
from tests.federation.onray.hazard import PLACE, lay
from tests.rounds.bench import FEDAVG, FEDSGD, RECORD, heart
from tests.rounds.secure_bench import secret

import consilia
from consilia.plan.schema import Plan
from consilia.store.ledger_store import SiteStore

DISTRIBUTED = RECORD.replace('"site"', '"distributed"')
POISSON = 'algorithm = "fedavg"\nbatch = "poisson"\nsampling_rate = 0.3\nlocal_steps = 3\nlearning_rate = 0.1'
OnRound = Callable[[Any], None]


def with_model(plan: Plan, **changes: Any) -> Plan:
    model = {"name": "tests.federation.onray.hazard:model", **changes}
    return plan.model_copy(update={"model": plan.model.model_copy(update=model)})


def runs(plan: Plan, folder: Path, monkeypatch: pytest.MonkeyPatch, on_round: OnRound | None = None) -> list[Any]:
    """Return what the run comes to in this process and on the cluster, and what each then left in the ledgers."""
    found = []
    for engine in ("process", "ray"):
        monkeypatch.setenv("CONSILIA_HOME", str(folder / engine))
        result = consilia.run(plan, folder / f"run-{engine}", on_round if engine == "ray" else None, engine=engine)
        found.append((result, ledgers(folder / engine)))
    return found


def ledgers(home: Path) -> dict[str, list[str]]:
    kinds = {}
    for path in sorted((home / "sites").glob("*.sqlite")):
        with SiteStore.open(path, path.stem) as store:
            for population in store.populations():
                store.verify(population)
                kinds[path.stem] = [str(entry.kind) for entry in store.entries(population)]
    return kinds


def require_alike(found: list[Any]) -> None:
    (here, mine), (there, theirs) = found
    assert np.array_equal(here.model, there.model)
    assert mine == theirs
    for record, other in zip(here.records, there.records, strict=True):
        assert {key for key in record if record[key] != other[key]} <= {"seconds", "transcript"}
    assert all(record["status"] == "counted" for record in here.records)


def test_what_sites_keep_from_round_to_round(
    two_nodes: TwoNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = heart(rounds=3, training=f"{FEDAVG}\nscaffold = true", privacy='unit = "none"')
    plan = with_model(plan, name="tests.federation.onray.hazard:with_norm", local_layers="norm")
    require_alike(runs(plan, tmp_path, monkeypatch))


def test_distributed_noise_under_masks(two_nodes: TwoNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = secret("masks", rounds=2, privacy=DISTRIBUTED)
    require_alike(runs(plan, tmp_path, monkeypatch))


def test_a_worker_that_is_killed_costs_nobody_anything(
    two_nodes: TwoNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise of every site, drawn in workers, one of which is killed in the midst of it."""
    plan = with_model(heart(rounds=3, training=POISSON, privacy=RECORD))
    found = runs(plan, tmp_path, monkeypatch, lambda record: lay("kill") if record["round"] == 1 else None)
    assert not list(Path(os.environ[PLACE]).iterdir())  # it was sprung
    require_alike(found)
    assert [kinds.count("reserve") for kinds in found[1][1].values()] == [3] * 4


def test_a_node_that_is_lost_costs_nobody_anything(
    two_nodes: TwoNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under masks and noise of the sites: raylet, workers and object store of a node end at once."""
    caught = Path(os.environ[PLACE]) / "caught"

    def hunt() -> None:
        end = time.monotonic() + 30
        while not (caught.exists() and caught.read_text()) and time.monotonic() < end:
            time.sleep(0.05)
        worker = int(caught.read_text())
        stat = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()
        os.kill(int(stat[1]), signal.SIGKILL)  # its parent is its node's raylet
        os.kill(worker, signal.SIGKILL)
        caught.unlink()

    hunter = Thread(target=hunt)

    def at_round(record: Any) -> None:
        if record["round"] == 1:
            lay("stay")
            hunter.start()

    plan = with_model(secret("masks", rounds=3, privacy=RECORD, training=FEDSGD))
    found = runs(plan, tmp_path, monkeypatch, at_round)
    hunter.join()
    require_alike(found)
    assert [kinds.count("reserve") for kinds in found[1][1].values()] == [3] * 4


def test_a_task_that_raises_or_kills_every_worker_costs_its_site_a_turn(
    two_nodes: TwoNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONSILIA_HOME", str(tmp_path / "home"))
    poison = Path(os.environ[PLACE]) / "poison"

    def at_round(record: Any) -> None:
        poison.unlink(missing_ok=True)
        if record["round"] < 3:
            lay({1: "poison", 2: "fail"}[record["round"]])

    plan = with_model(heart(rounds=4, privacy='unit = "none"', aggregation="quorum = 3"))
    result = consilia.run(plan, tmp_path / "run", at_round, engine="ray")
    dropped = [record["dropped"] for record in result.records]
    assert dropped[1] == {"Switzerland": "failed: WorkerLost"}  # of 30 rows
    assert list(dropped[2].values()) == ["failed: LookupError"]
    assert dropped[::3] == [{}, {}]
    assert "patient 42" not in str(result.records)


def test_a_task_that_hangs_costs_its_site_a_turn_and_its_worker_is_replaced(
    two_nodes: TwoNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONSILIA_HOME", str(tmp_path / "home"))
    caught = Path(os.environ[PLACE]) / "caught"
    plan = with_model(heart(rounds=3, privacy='unit = "none"', aggregation="deadline_seconds = 4.0\nquorum = 3"))
    result = consilia.run(
        plan, tmp_path / "run", lambda record: lay("hang") if record["round"] == 1 else None, engine="ray"
    )
    hung = int(caught.read_text())
    caught.unlink()
    dropped = [list(record["dropped"].values()) for record in result.records]
    assert dropped == [[], ["no answer before the deadline"], []]
    end = time.monotonic() + 30
    while Path(f"/proc/{hung}").exists() and "(zombie)" not in Path(f"/proc/{hung}/status").read_text():
        assert time.monotonic() < end
        time.sleep(0.1)
