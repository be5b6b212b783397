"""A job's run without NVFlare: real sites with keys, policies and ledgers of their own, each asked by calls."""

import threading
import time
from pathlib import Path

import pytest
from tests.federation.hospitals import HOSPITALS, POLICY, found, plan_text, services

import consilia
from consilia.core.canonical import digest_bytes
from consilia.core.errors import PlanError, StoreError
from consilia.federation.fleet.job import CONTROLLER, SITE, write_job
from consilia.federation.fleet.run import Aborted, run_job
from consilia.plan.load import from_text
from consilia.transport.calls import Calls

OPEN = POLICY.replace("[privacy]", "[privacy]\nmax_epsilon_run = inf\nmax_epsilon_set = inf")


def test_the_model_is_the_simulation_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = from_text(plan_text(rounds=3, reproducible=True))
    monkeypatch.setenv("CONSILIA_HOME", str(tmp_path / "simulated"))
    simulated = consilia.run(plan, out=tmp_path / "run")
    world = found(tmp_path / "world", policy=OPEN)
    looks: list[int] = []

    def connected() -> list[str]:
        looks.append(1)
        return list(HOSPITALS[: len(looks)])  # they come one after the other

    with services(world) as sites:
        locks = {name: threading.Lock() for name in sites}

        def call(site: str, frame: bytes, seconds: float) -> bytes:
            with locks[site]:
                return sites[site].handle(frame)

        real = run_job(
            plan, "heart-1", Calls(HOSPITALS, call, time.monotonic), connected, world.load("hub"), tmp_path / "job",
            seconds=60, aborted=lambda: False,
        )  # fmt: skip
    assert real.summary["status"] == "done"
    assert digest_bytes(real.model.tobytes()) == digest_bytes(simulated.model.tobytes())
    assert [record["answered"] for record in real.records] == [list(HOSPITALS)] * 3


def test_a_policy_that_forbids_it_and_an_operator_who_aborts_end_it(tmp_path: Path) -> None:
    plan, world = from_text(plan_text(rounds=2, reproducible=True)), found(tmp_path / "world")  # claims no epsilon
    with services(world) as sites:
        transport = Calls(HOSPITALS, lambda site, frame, _seconds: sites[site].handle(frame), time.monotonic)
        with pytest.raises(PlanError, match=r"policy key privacy\.max_epsilon_run"):
            run_job(plan, "heart-1", transport, lambda: HOSPITALS, world.load("hub"), tmp_path / "job", seconds=60,
                    aborted=lambda: False)  # fmt: skip
        with pytest.raises(PlanError, match="not enough sites agreed in 0 s"):
            run_job(
                plan, "heart-2", transport, list, world.load("hub"), tmp_path / "job", seconds=0, aborted=lambda: False
            )
        with pytest.raises(Aborted):
            run_job(
                plan, "heart-3", transport, list, world.load("hub"), tmp_path / "job", seconds=60, aborted=lambda: True
            )
    assert not (tmp_path / "job").exists()


def test_a_job_is_a_plan_and_two_names(tmp_path: Path) -> None:
    plan = from_text(plan_text())
    write_job(plan, {"Cleveland": "site-1"}, tmp_path / "job")
    files = sorted(str(path.relative_to(tmp_path / "job")) for path in (tmp_path / "job").rglob("*") if path.is_file())
    assert files == [
        "app/config/config_fed_client.json", "app/config/config_fed_server.json", "app/config/plan.json", "meta.json"
    ]  # fmt: skip
    text = "".join((tmp_path / "job" / name).read_text() for name in files)
    assert [text.count(name) for name in (SITE, CONTROLLER, '"path": "consilia.')] == [1, 1, 2]
    with pytest.raises(StoreError, match="a fresh folder"):
        write_job(plan, {}, tmp_path / "job")
