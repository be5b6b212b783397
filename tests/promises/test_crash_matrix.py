"""SIGKILL of the coordinator and of each site at every crash point, in processes of their own: the run ends as it would have.

Which crash points there are is read off the source, so that a new one cannot be forgotten.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.promises.matrix import CASES, COORDINATOR, cases

import consilia

SHARDS = 4
MODES = ("plain", "secure", "secure+dp")  # and of two more only what these do not come by
MORE = {"kept": ("ledger.seal",), "server": ("journal.stage", "coordinator.after_stage")}
# Crash points of commands, services and other kinds of rounds, which a run of this bench does not come by: who kills there.
ELSEWHERE = {
    "consent.": "tests/store/test_site_crash.py",
    "coordinator.before_sum": "tests/rounds/asynchronous/test_kill.py",
    "courier.": "tests/transport/link/test_kill.py",
    "identity": "tests/rounds/test_secure_kill.py",
    "inbox.": "tests/store/test_site_crash.py",
    "journal.claim": "tests/store/test_runs_crash.py",
    "journal.export": "tests/store/test_runs_crash.py",
    "ledger.forget": "tests/study/test_search.py",
    "ledger.limit": "tests/store/test_crash.py",
    "prepared.": "tests/rounds/asynchronous/test_kill.py",
    "queue.": "tests/store/test_runs_crash.py",
    "search.": "tests/study/test_search.py",
    "site.after_prepared": "tests/rounds/asynchronous/test_kill.py",
    "site.before_prepared": "tests/rounds/asynchronous/test_kill.py",
}
ROOT = Path(__file__).parents[2]


@cache
def planned() -> list[dict[str, Any]]:
    found = [case for mode in MODES for case in cases(mode)]
    for mode, wanted in MORE.items():
        found += [case for case in cases(mode) if case["point"].startswith(wanted)]
    return found


def kills(shard: int) -> list[dict[str, Any]]:
    """Run a shard's kills, and each mode's unbroken run first."""
    unbroken = [{"mode": mode, "actor": "", "point": "", "passage": 1} for mode in (*MODES, *MORE)]
    return run([*unbroken, *planned()[shard::SHARDS]])


def run(wanted: list[dict[str, Any]]) -> list[dict[str, Any]]:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(wanted, file)
        file.flush()
        done = subprocess.run(
            [sys.executable, "-m", "tests.promises.matrix", file.name], capture_output=True, text=True, check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=ROOT,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(report: Mapping[str, Any], unbroken: Mapping[str, Any]) -> None:
    """Hold a killed run against the unbroken one."""
    assert not report["fault"]
    assert not report["violation"]
    assert report["killed"] == {report["actor"]: 1}
    assert report["status"] == "done"
    assert report["model"] == unbroken["model"]
    assert report["answered"] == unbroken["answered"]
    assert all(report["reserved"][site] >= count for site, count in unbroken["reserved"].items())


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_killed_run_ends_as_the_unbroken_one(shard: int) -> None:
    reports = kills(shard)
    whole = {report["mode"]: report for report in reports if not report["actor"]}
    assert all(not report["fault"] and not report["violation"] for report in whole.values()), whole
    for report in reports:
        if report["actor"]:
            try:
                check(report, whole[report["mode"]])
            except AssertionError as error:
                raise AssertionError(f"{report}") from error


def points() -> set[str]:
    """Return every crash point that the source names; of a transaction the beginning of its three."""
    found = set()
    for path in Path(consilia.__file__).parent.rglob("*.py"):
        text = path.read_text()
        found |= set(re.findall(r'crash_point\("([a-z._]+)"\)', text))
        found |= set(re.findall(r'(?:writing\([^()]*|write\(\s*)"([a-z]+(?:\.[a-z]+)*)"', text))
    return found


def test_no_crash_point_is_forgotten() -> None:
    passed = {re.sub(r"\.(before|written|committed)$", "", case["point"]) for case in planned()}
    left = points() - passed
    known = {name for name in left if name.startswith(tuple(ELSEWHERE))}
    assert left == known, "a new crash point: kill at it here, or say who does"
    for begins, path in ELSEWHERE.items():
        assert any(name.startswith(begins) for name in left), f"{begins} is no crash point, or is killed at here"
        assert begins.rstrip(".").rpartition(".")[2] in (ROOT / path).read_text(), f"{path} does not speak of {begins}"


def test_how_many_runs_are_killed() -> None:
    assert len(planned()) >= 270
    assert {case["actor"] for case in planned()} == {COORDINATOR, *CASES["secure"].names}
