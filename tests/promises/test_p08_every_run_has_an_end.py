"""P8. Every run ends in a terminal state: done, stopped or failed with a reason, also if every process of it was killed."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.promises.fleet import Case
from tests.promises.scenes import calm, killed


@pytest.mark.parametrize(("mode", "rates", "status"), [
    ("clear", {"drop": 0.0}, "done"), ("clear", {"drop": 1.0}, "failed"), ("masks", {"drop": 1.0}, "failed"),
])  # fmt: skip
def test_a_run_ends_with_a_status_and_a_reason(
    mode: str, rates: dict[str, float], status: str, place: Path, shelf: Path
) -> None:
    world = calm(Case(mode), place, shelf, rates).run()
    with closing(sqlite3.connect(world.fleet.journal_path)) as sql:
        found, reason = sql.execute("SELECT status, reason FROM run").fetchone()
    assert (found, bool(reason)) == (status, status == "failed")


@pytest.mark.parametrize("step", ["before", "written", "committed"])
def test_killed_at_its_end_a_run_ends_all_the_same(step: str, place: Path) -> None:
    report = killed("kept", "coordinator", f"journal.finish.{step}", 1, place)
    assert report["killed"] == {"coordinator": 1}
    assert (report["violation"], report["status"]) == ("", "done")
