"""SIGKILL at every step of a run that sums in secret: no site is in two sums of a round, none says less than it spent."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.rounds.bench import HEART, RECORD

from consilia.secagg.transcript import Entry, first

ROUNDS = 3
FEDSGD = 'algorithm = "fedsgd"\nbatch = "full"\nserver_learning_rate = 0.1\n[secure_sum]\n'
DISTRIBUTED = RECORD.replace('"site"', '"distributed"')
COMMON: dict[str, Any] = {"rounds": ROUNDS, "aggregation": "", "evaluation": "every = 2", "metrics": "public"}
MODES = {
    "masks": HEART.format(**COMMON | {
        "training": FEDSGD + 'mode = "masks"\ndropouts = 1', "privacy": DISTRIBUTED, "reproducible": "false"}),
    # The same randomness again, so the same sessions: nothing is lost.
    "reproducible": HEART.format(**COMMON | {
        "training": FEDSGD + 'mode = "masks"', "privacy": 'unit = "none"', "reproducible": "true"}),
    "rlwe": HEART.format(**COMMON | {
        "training": FEDSGD + 'mode = "rlwe"\ndropouts = 1', "privacy": DISTRIBUTED, "reproducible": "false"}),
    "paillier": HEART.format(**COMMON | {
        "training": FEDSGD + 'mode = "paillier"\nkey_bits = 2048', "privacy": DISTRIBUTED, "reproducible": "false",
        "metrics": "hidden", "evaluation": ""}),
}  # fmt: skip
STEPS = ("before", "written", "committed")
# A round of four sites stores four vectors, four votes, and in the second which model was scored, four times; the entry of
# a round is noted by each site in the next one.
VECTOR, VOTE, SCORED = 10, 14, 18
POINTS = {
    "masks": [
        *(f"identity.{step}:2" for step in STEPS),
        *(f"transcript.note.{step}:{k}" for step, k in zip(STEPS, (2, 5, 2), strict=True)),
        f"session.keep.before:{VOTE}", f"session.keep.written:{VECTOR}",
        *(f"session.keep.committed:{k}" for k in (VECTOR, VOTE, SCORED)), "ledger.reserve.committed:6",
        *(f"session.forget.{step}:2" for step in STEPS), "site.after_commit:6", "coordinator.after_collect:2",
        "coordinator.after_commit:2",
    ],
    "reproducible": [f"session.keep.committed:{VECTOR}", "coordinator.after_collect:2"],
    "rlwe": ["site.after_commit:6", "coordinator.after_commit:2"],
    "paillier": ["coordinator.after_commit:2"],
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
        assert point.startswith(("identity", "journal.create"))
        assert not report["journal"] or point.startswith("journal.create")
        final = final["again"]
    assert final["status"] == "done", final
    assert final["rounds"] == ROUNDS
    assert final["epsilon"] == unbroken["first"]["epsilon"]
    if mode == "reproducible":
        assert final["statuses"] == ["counted"] * ROUNDS
        assert final["model"] == unbroken["first"]["model"]
    else:
        # The round in which the process died at most; or the last one, where a site's budget went into an answer lost.
        assert final["statuses"].count("skipped") <= 1
        assert final["statuses"][0] == "counted"
    _one_sum_a_round(report, final)
    _ledgers(report)
    _chain(report, final)


def _one_sum_a_round(report: dict[str, Any], final: dict[str, Any]) -> None:
    """Whatever was asked of a site, and by how many processes: a round's answer left it once, for one session."""
    left: dict[tuple[str, int, str, str], set[tuple[str, str]]] = {}
    for site, number, purpose, stage, session, payload in report["answers"]:
        if stage in ("train", "vote", "reveal", "open") and purpose == "update":
            left.setdefault((site, number, purpose, stage), set()).add((session, payload))
    assert all(len(answers) == 1 for answers in left.values()), left
    if "again" not in report["second"]:
        trained = {number for _, number, _, stage in left if stage == "train"}
        assert {number for number, status in enumerate(final["statuses"], 1) if status == "counted"} <= trained


def _ledgers(report: dict[str, Any]) -> None:
    for state in (report["left"], report["after"]):
        state.pop("signal", None)
    for site, ledger in report["after"].items():
        sent = {
            number
            for name, number, purpose, stage, *_ in report["answers"]
            if (name, purpose, stage) == (site, "update", "train")
        }
        assert ledger["charged"] >= ledger["committed"] >= len(sent)
        assert ledger["charged"] >= report["left"].get(site, {"charged": 0})["charged"]
        assert ledger["charged"] <= ROUNDS


def _chain(report: dict[str, Any], final: dict[str, Any]) -> None:
    """What the coordinator signed is one chain, and each site holds the beginning of it."""
    if not report["entries"] or "again" in report["second"]:
        return
    report["entries"].pop("signal", None)
    written = [Entry.from_json(entry) for entry in final["transcript"] if entry is not None]
    head = ""
    for entry in written:
        head = head or first(entry.run)
        assert entry.previous == head
        head = entry.hash
    counted = final["statuses"].count("counted")
    assert len(written) == (counted if report["name"][0] in ("masks", "reproducible") else 0)
    for kept in report["entries"].values():
        assert [Entry.from_json(entry) for entry in kept] == written[: len(kept)]
        assert len(kept) >= len(written) - 1  # the last one comes with a round that never begins
