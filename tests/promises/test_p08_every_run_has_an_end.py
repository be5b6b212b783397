"""P8. Every run ends in a terminal state: done, stopped or failed with a reason, also if every process of it was killed."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.promises.fleet import Case
from tests.promises.scenes import calm, killed
from tests.rounds.bench import heart

import consilia
from consilia.store.journal import Journal


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


def ended(folder: Path) -> tuple[str, bool]:
    with closing(sqlite3.connect(folder / "journal.sqlite")) as sql:
        status, reason = sql.execute("SELECT status, reason FROM run").fetchone()
    return status, bool(reason)


def test_a_run_in_one_process_that_gives_up_has_failed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSILIA_HOME", str(place / "home"))
    consilia.run(heart(rounds=9, aggregation="deadline_seconds = 1e-9"), out=place / "run")
    assert ended(place / "run") == ("failed", True)


def test_killed_while_it_gives_up_it_fails_once_it_is_resumed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSILIA_HOME", str(place / "home"))

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "finish", dies)
        with pytest.raises(KeyboardInterrupt):
            consilia.run(heart(rounds=9, aggregation="deadline_seconds = 1e-9"), out=place / "run")
    assert ended(place / "run") == ("running", False)
    consilia.resume(place / "run")
    assert ended(place / "run") == ("failed", True)
