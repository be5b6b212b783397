"""SIGKILL at every step of two-phase rounds: no update is in two sums, none is forgotten by a ledger, and the run goes on."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.rounds.asynchronous.stage import FEDAVG, FEDSGD, HEART, claim

from consilia.secagg.transcript import Entry, first

ROUNDS, SITES = 4, 4
COMMON: dict[str, Any] = {
    "rounds": ROUNDS, "mode": "two-phase", "ready": 3, "aggregation": "", "metrics": "public", "reproducible": "false",
    "secure": 'mode = "masks"', "training": FEDSGD, "privacy": claim("record", "distributed", z=5.0),
}  # fmt: skip
MODES = {
    "masks": HEART.format(**COMMON),
    "clear": HEART.format(**COMMON | {"secure": "", "training": FEDAVG, "privacy": claim("site", "site")}),
    "plain": HEART.format(**COMMON | {"privacy": 'unit = "none"', "reproducible": "true"}),
    # An update that the model has left one step behind is dropped, and another begun.
    "stale": HEART.format(**COMMON | {"aggregation": "max_staleness = 0"}),
}
STEPS = ("before", "written", "committed")
# Sites of one process train in their turns: A B C, then D A B, then C A B, then D A B; the fourth and seventh updates are old.
SECOND = 5
POINTS = {
    "masks": [
        *(f"prepared.keep.{step}:{SECOND}" for step in STEPS),
        f"site.after_reserve:{SECOND}", f"site.before_prepared:{SECOND}", f"site.after_prepared:{SECOND}",
        f"site.after_prepared:{SECOND + 1}", "coordinator.before_sum:2", f"session.keep.written:{10}",
        f"session.keep.committed:{10}", f"session.keep.committed:{13}", f"site.before_commit:{SECOND}",
        "ledger.commit.charged:5", "ledger.commit.written:5", "ledger.commit.committed:5", "site.after_commit:6",
        "coordinator.after_collect:2", "coordinator.before_commit:2", "journal.stage.written:2", "journal.stage.committed:2",
        "coordinator.after_commit:2",
    ],
    "clear": [f"prepared.keep.written:{SECOND}", "site.after_commit:5", "coordinator.before_sum:2",
              "coordinator.after_collect:2"],
    "plain": [f"prepared.keep.committed:{SECOND}", "ledger.seal.written:5", "ledger.seal.committed:5",
              "coordinator.before_sum:2"],
    "stale": [f"prepared.drop.{step}:1" for step in STEPS],
}  # fmt: skip
CASES = [(mode, point) for mode, points in POINTS.items() for point in ("nowhere", *points)]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, Any]]:
    folder = tmp_path_factory.mktemp("kill")
    cases = [
        {"name": [mode, point], "plan": MODES[mode], "crash": point, "folder": str(folder / f"{i}")}
        for i, (mode, point) in enumerate(CASES)
    ]
    (folder / "cases.json").write_text(json.dumps(cases))
    worker = Path(__file__).parents[1] / "crash_worker.py"
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
    assert final["status"] == "done", final
    assert final["rounds"] == ROUNDS
    assert final["epsilon"] == unbroken["first"]["epsilon"]
    # The round in whose sum the process died at most.
    assert final["statuses"].count("skipped") <= (1 if point != "nowhere" else 0), final["statuses"]
    _in_one_sum(final)
    _one_answer_a_round(report)
    _ledgers(mode, report)
    _chain(mode, report, final)


def test_a_kill_while_sites_prepare_costs_no_round(reports: dict[tuple[str, str], dict[str, Any]]) -> None:
    for mode, point in CASES:
        if point.startswith(("prepared", "site.after_reserve", "site.before_prepared", "site.after_prepared")):
            assert reports[mode, point]["second"]["statuses"] == ["counted"] * ROUNDS, (mode, point)


def _in_one_sum(final: dict[str, Any]) -> None:
    """Each update of a site, told apart by the step of the model that it began at, is in one counted round."""
    steps, seen = 0, set()
    for status, ages in zip(final["statuses"], final["staleness"], strict=True):
        if status != "counted":
            continue
        for site, age in ages.items():
            assert (site, steps - age) not in seen
            seen.add((site, steps - age))
        steps += 1


def _one_answer_a_round(report: dict[str, Any]) -> None:
    left: dict[tuple[str, int, str], set[tuple[str, str]]] = {}
    for site, number, purpose, stage, session, payload in report.get("answers", []):
        if stage in ("add", "vote", "reveal") and purpose == "update":
            left.setdefault((site, number, stage), set()).add((session, payload))
    assert all(len(answers) == 1 for answers in left.values()), left


def _ledgers(mode: str, report: dict[str, Any]) -> None:
    for state in (report["left"], report["after"]):
        state.pop("signal", None)
    assert len(report["after"]) == (SITES if mode != "plain" else 0)
    for site, ledger in report["after"].items():
        given = {number for name, number, _, stage, *_ in report.get("answers", []) if (name, stage) == (site, "add")}
        assert ROUNDS >= ledger["charged"] >= ledger["committed"] >= len(given)
        assert ledger["charged"] >= report["left"].get(site, {"charged": 0})["charged"]


def _chain(mode: str, report: dict[str, Any], final: dict[str, Any]) -> None:
    """What the coordinator signed is one chain, and each site holds the beginning of it: nobody saw it contradicted."""
    if mode not in ("masks", "stale"):
        return
    report["entries"].pop("signal", None)
    written = [Entry.from_json(entry) for entry in final["transcript"] if entry is not None]
    assert len(written) == final["statuses"].count("counted")
    head = ""
    for entry in written:
        head = head or first(entry.run)
        assert entry.previous == head
        head = entry.hash
    for kept in report["entries"].values():
        assert [Entry.from_json(entry) for entry in kept] == written[: len(kept)]
