"""SIGKILL at every step of a run: the resumed run ends where the unbroken one does, and no ledger shows less than was sent."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.rounds.bench import HEART, RECORD, SITE

ROUNDS = 3
COMMON: dict[str, Any] = {"rounds": ROUNDS, "aggregation": "", "evaluation": ""}
FEDSGD = 'algorithm = "fedsgd"\nbatch = "full"\nserver_optimizer = "momentum"\nserver_learning_rate = 0.1'
MODES = {
    # Bit for bit: all randomness from the public seed; metrics charged too.
    "reproducible": HEART.format(**COMMON | {
        "training": FEDSGD + '\nkeep = "tail-average"', "privacy": RECORD, "metrics": "charged", "reproducible": "true",
        "evaluation": "noise_multiplier = 5.0"}),
    # What patients get: fresh noise from the operating system after every restart.
    "private": HEART.format(**COMMON | {"training": FEDSGD, "privacy": RECORD, "metrics": "public", "reproducible": "false"}),
    # State kept at the sites: control variates that count only with their round.
    "scaffold": HEART.format(**COMMON | {
        "training": 'algorithm = "fedavg"\nbatch = "fixed"\nbatch_size = 64\nlocal_epochs = 1\nscaffold = true',
        "privacy": 'unit = "none"', "metrics": "public", "reproducible": "true"}),
    # What top-k left out at the sites, which counts only with its round.
    "top-k": HEART.format(**COMMON | {
        "training": FEDSGD + "\n[messages]\ntop_k = 0.2", "privacy": 'unit = "none"', "metrics": "public",
        "reproducible": "true"}),
    # Noise at the server: the noised model is written down before the sites see it.
    "server": HEART.format(**COMMON | {
        "training": 'algorithm = "fedavg"\nbatch = "full"\nlocal_steps = 2\nserver_optimizer = "momentum"', "privacy": SITE,
        "metrics": "public", "reproducible": "true"}),
}  # fmt: skip
STEPS = ("before", "written", "committed")
SITE_POINTS = ("site.before_reserve", "site.after_reserve", "site.before_commit", "site.after_commit")
COORDINATOR_POINTS = ("coordinator.after_collect", "coordinator.before_commit", "coordinator.after_commit")
LEDGER = [f"ledger.{verb}.{step}" for verb in ("reserve", "commit") for step in STEPS] + ["ledger.commit.charged"]
JOURNAL = [f"journal.commit.{step}" for step in STEPS]
BEGIN = [f"{place}.{step}" for place in ("store.create", "ledger.allot", "journal.create") for step in STEPS]
END = [f"{place}.{step}" for place in ("ledger.close", "journal.finish") for step in STEPS]
MIDDLE = [f"{name}:{k}" for name in (*SITE_POINTS, *LEDGER) for k in (6,)] + [
    f"{name}:2" for name in (*COORDINATOR_POINTS, *JOURNAL)
]
POINTS = {
    "reproducible": [*BEGIN, *MIDDLE, *END],
    "private": [f"{name}:6" for name in (*SITE_POINTS, *LEDGER)]
    + [f"{name}:2" for name in (*COORDINATOR_POINTS, *JOURNAL)],
    "scaffold": [f"{name}:6" for name in (*SITE_POINTS, *(f"ledger.seal.{step}" for step in STEPS))]
    + [f"{name}:2" for name in (*COORDINATOR_POINTS, *JOURNAL)],
    "top-k": [f"{name}:6" for name in ("site.before_commit", "site.after_commit", "ledger.seal.written")]
    + [f"{name}:2" for name in (*COORDINATOR_POINTS, "journal.commit.written")],
    "server": [
        f"{name}:2"
        for name in (
            "coordinator.after_collect",
            *(f"journal.stage.{step}" for step in STEPS),
            "coordinator.after_stage",
            "coordinator.before_commit",
            *JOURNAL,
        )
    ],
}
CASES = [(mode, point) for mode, points in POINTS.items() for point in ("nowhere", *points)]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, Any]]:
    folder = tmp_path_factory.mktemp("kill")
    cases = [
        {"name": [mode, point], "plan": MODES[mode], "crash": point, "folder": str(folder / f"{i}")}
        for i, (mode, point) in enumerate(CASES)
    ]
    (folder / "cases.json").write_text(json.dumps(cases))
    worker = Path(__file__).with_name("crash_worker.py")
    done = subprocess.run(
        [sys.executable, str(worker), str(folder / "cases.json")], capture_output=True, text=True, timeout=900,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {(report["name"][0], report["name"][1]): report for report in found}


@pytest.mark.parametrize(("mode", "point"), CASES)
def test_kill_and_resume(mode: str, point: str, reports: dict[tuple[str, str], dict[str, Any]]) -> None:
    report, unbroken = reports[mode, point], reports[mode, "nowhere"]
    assert report["first"]["signal"] == (0 if point == "nowhere" else 9), report["first"]
    final = report["second"]
    if final.get("error") == "StoreError":
        assert point.split(".")[0] in ("store", "ledger", "journal")
        assert not report["journal"] or point.startswith("journal.create") or point.startswith("store.create")
        final = final["again"]
    assert final["status"] == "done", final
    assert final["rounds"] == ROUNDS
    assert final["epsilon"] == unbroken["first"]["epsilon"]
    if mode != "private":
        assert final["model"] == unbroken["first"]["model"]
    for state in (report["left"], report["after"]):
        state.pop("signal", None)
    for site, ledger in report["after"].items():
        # Pattern K: charged before released, and never less after a restart.
        assert ledger["charged"] >= ledger["committed"]
        assert ledger["charged"] >= report["left"].get(site, {"charged": 0})["charged"]
    if mode == "private":
        _private(point, report)


def _private(point: str, report: dict[str, Any]) -> None:
    lost = {site for site, ledger in report["after"].items() if ledger["charged"] > ledger["committed"]}
    between = point.split(":")[0] in (
        "site.after_reserve", "site.before_commit", "ledger.reserve.committed", "ledger.commit.before",
        "ledger.commit.charged", "ledger.commit.written",
    )  # fmt: skip
    assert bool(lost) == between
    # A kill between charge and release costs one site its last turn; its own ledger refuses, nobody else's.
    assert set(report["second"]["dropped"]) == lost
    assert all(why == "refused: BudgetExceeded" for why in report["second"]["dropped"].values())
    assert all(ledger["charged"] == ROUNDS for ledger in report["after"].values())
