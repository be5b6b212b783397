"""Kill -9 at every crash point of the coordinator's store, in a file and on a server: every run goes on to the same end."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from tests.store.forked import killed_at

from consilia.store import leases, locks
from consilia.store.journal import Journal
from consilia.store.runs import RunQueue

ROUNDS = 3
PLACES = [
    f"{name}.{where}:{turn}"
    for name, turns in (
        ("store.create", 1), ("queue.submit", 1), ("queue.take", 1), ("queue.leave", 1), ("queue.stop", 1), ("queue.end", 1),
        ("journal.create", 1), ("journal.stage", 1), ("journal.commit", 3), ("journal.claim", 1), ("journal.finish", 1),
        ("journal.export", 1),
    )
    for where in ("before", "written", "committed")
    for turn in range(1, turns + 1)
]  # fmt: skip


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.4)
    monkeypatch.setattr(locks, "GRACE_SECONDS", 5.0)  # the server needs a moment to see that a process died


def state(round: int) -> bytes:
    return b"state %d" % round * 1000


def coordinate(place: str, folder: Path) -> None:
    """Do what a coordinator does, from wherever the store stands; note each step that was acknowledged."""
    said = folder / "said"

    def note(what: str) -> None:
        with said.open("a") as file:
            file.write(f"{what}\n")
            file.flush()
            os.fsync(file.fileno())

    with RunQueue(place) as queue:
        for name in ("r", "never"):
            queue.submit(name, '{"plan": 1}', by="me")
        note("submitted")
        queue.ask_stop("never", by="me")
        note("asked")
        if any(run.run == "never" for run in queue.open()):
            queue.end("never", "stopped", "nobody wanted it")
        note("ended")
        while waiting := [run for run in queue.all() if run.status in ("queued", "running")]:
            if queue.open() == []:
                continue  # the lease of the one before has to run out
            (run,) = waiting
            with queue.held("r"):
                if run.status == "queued":
                    Journal.create(place, run="r", plan_json="{}", digest="d", state=[state(0)]).close()
                    note("round 0")
                with Journal.open(place, "r") as journal:
                    while journal.round < ROUNDS:
                        if journal.round == 1:
                            journal.stage([state(2)])
                            note("staged")
                        journal.commit_round(
                            journal.round + 1,
                            state=[state(journal.round + 1)],
                            record={"round": journal.round + 1},
                            charges=[],
                        )
                        note(f"round {journal.round}")
                    journal.export(folder / "journal.sqlite")
                    note("exported")
                    journal.finish("done", None, {"rounds": ROUNDS})
                    note("done")
    note("left")


def check(place: str, folder: Path) -> None:
    """Compare what was acknowledged with what the store says."""
    path = folder / "said"
    said = path.read_text().splitlines() if path.exists() else []
    if not said:
        return
    with RunQueue(place) as queue:
        found = {run.run: run for run in queue.all()}
    assert list(found) == ["r", "never"]
    if "ended" in said:
        assert (found["never"].status, found["never"].reason) == ("stopped", "nobody wanted it")
    rounds = [int(line.partition(" ")[2]) for line in said if line.startswith("round")]
    if rounds:
        with Journal.open(place, "r", read_only=True) as journal:
            assert journal.round in (rounds[-1], rounds[-1] + 1)
            assert found["r"].round == journal.round
            assert [record["round"] for record in journal.records()] == list(range(1, journal.round + 1))
            assert journal.state in (state(journal.round), state(2) if journal.round == 1 else b"")
            assert ("staged" not in said) or journal.state != state(1)
            assert found["r"].status == journal.status
    if "exported" in said:
        with Journal.open(folder / "journal.sqlite", read_only=True) as copy:
            assert (copy.round, copy.state) == (ROUNDS, state(ROUNDS))


@pytest.mark.parametrize("place", PLACES)
def test_after_a_kill_the_run_goes_on_to_the_same_end(many: str, tmp_path: Path, place: str) -> None:
    assert killed_at(place, lambda: coordinate(many, tmp_path)) == -signal.SIGKILL
    check(many, tmp_path)
    assert killed_at("", lambda: coordinate(many, tmp_path)) == 0
    check(many, tmp_path)
    with RunQueue(many) as queue:
        assert [(run.run, run.status, run.round) for run in queue.all()] == [
            ("r", "done", ROUNDS),
            ("never", "stopped", 0),
        ]
    with Journal.open(many, "r", read_only=True) as journal:
        assert (journal.status, journal.result, journal.state) == ("done", {"rounds": ROUNDS}, state(ROUNDS))
        assert [record["round"] for record in journal.records()] == [1, 2, 3]


@pytest.mark.parametrize("where", ["before", "written", "committed"])
def test_a_kill_while_a_lease_is_renewed(url: str, where: str) -> None:
    def hold() -> None:
        with RunQueue(url) as queue, queue.held("r"):
            threading.Event().wait(60)

    with RunQueue(url) as queue:
        queue.submit("r", "{}", by="me")
        assert killed_at(f"queue.renew.{where}:2", hold) == -signal.SIGKILL
        deadline = time.monotonic() + 30
        while not queue.open():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with queue.held("r"):
            assert queue.open() == []
