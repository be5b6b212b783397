"""What a site's machine does to it: stopped, short of memory, with a disk that is full or fails, with a clock that is wrong."""

import ast
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tests.faults.rig import Rig, dropped
from tests.promises.fleet import Case
from tests.transport.link.waiting import until

import consilia

DP = Case("dp", deadline=20.0)
BEAT, START = 1.5, 90.0  # seconds: a process that starts on a busy machine takes its time
BAD = "Bergen"
CI = os.environ.get("CI") == "true"
FAKETIME = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)
Make = Callable[..., Rig]


def need(there: object, what: str) -> None:
    if not there and not CI:
        pytest.skip(f"{what} is not installed")
    assert there, what


@contextlib.contextmanager
def process(rig: Rig, *, env: dict[str, str] | None = None, **more: object) -> Iterator["subprocess.Popen[str]"]:
    """Run the bad site in a process of its own, and the others in this one."""
    rig.start(*(name for name in rig.case.names if name != BAD))
    told = {
        "case": asdict(rig.case), "folder": str(rig.folder), "name": BAD, "address": f"127.0.0.1:{rig.lines[BAD].port}",
        "credentials": str(rig.world.folder / BAD), **more,
    }  # fmt: skip
    with (rig.folder / "worker.log").open("w") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.site_worker", json.dumps(told)], stdout=subprocess.PIPE, stderr=log,
            text=True, env={**os.environ, **(env or {})},
        )  # fmt: skip
        try:
            yield worker
        finally:
            worker.send_signal(signal.SIGCONT)
            worker.terminate()
            worker.communicate(timeout=20)


def answers(worker: "subprocess.Popen[str]") -> list[list[Any]]:
    worker.terminate()
    out, _ = worker.communicate(timeout=20)
    return [json.loads(line) for line in out.splitlines()]


def there(rig: Rig, worker: "subprocess.Popen[str]") -> None:
    until(lambda: rig.connected(BAD) or worker.poll() is not None, START)
    assert worker.poll() is None, (rig.folder / "worker.log").read_text()


def test_sigstop_then_sigcont(make: Make) -> None:
    rig = make(DP, BEAT)
    with process(rig) as worker:
        there(rig, worker)

        def between(record: dict[str, Any]) -> None:
            if record["round"] == 1:
                worker.send_signal(signal.SIGSTOP)
            if record["round"] == 2:
                worker.send_signal(signal.SIGCONT)
                until(lambda: not rig.connected(BAD) or rig.hub.sites()[BAD].heard < 0.5)
                there(rig, worker)

        records = rig.run(between, sound=False)
        found = answers(worker)
    rig.sound()
    assert dropped(records) == [set(), {BAD}, set()]
    assert "connection lost" in records[1]["dropped"][BAD]
    assert records[1]["seconds"] < DP.deadline
    released = {number for release, number, size in found if release and size}
    assert rig.charged(BAD) >= len(released) >= 2


def test_memory_limit(make: Make) -> None:
    rig = make(DP, BEAT)
    with process(rig, memory=64 << 20) as worker:
        there(rig, worker)
        records = rig.run(sound=False)
        answers(worker)
    rig.sound()
    assert dropped(records) == [set(), {BAD}, set()]
    assert "MemoryError" in records[1]["dropped"][BAD]


def disk(folder: Path, shelf: Path, kind: str, *before: str) -> list[dict[str, Any]]:
    run = subprocess.run(
        [*before, sys.executable, "-m", "tests.faults.disk_worker", str(folder), kind, str(shelf)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    found: list[dict[str, Any]] = json.loads(run.stdout)
    return found


def never_less_than_released(one: dict[str, Any]) -> None:
    first = {number for number, answer in enumerate(one["answers"], 1) if answer == "released"}
    second = {number for number, answer in enumerate(one["after"], 1) if answer == "released"}
    assert one["charged"] >= len(first)
    assert one["charged_after"] >= len(first | second)


def test_disk_full_at_each_write(tmp_path: Path, shelf: Path) -> None:
    found = disk(tmp_path, shelf, "full")
    for one in found:
        never_less_than_released(one)
        assert set(one["answers"]) <= {"released", "StoreError"}
        assert one["after"] == ["released"] * 3  # with room again, every round comes after all
    # It was full before the reservation, between the reservation and the answer, and after an answer.
    assert any(one["charged"] == 0 for one in found)
    assert any(one["charged"] > one["answers"].count("released") for one in found)
    assert any("released" in one["answers"] and "StoreError" in one["answers"] for one in found)


def test_fsync_error(tmp_path: Path, shelf: Path) -> None:
    need(shutil.which("strace"), "strace")
    disk(tmp_path / "sound", shelf, "flush")  # makes the empty stores, and shows that the site is sound
    trace = tmp_path / "trace"
    inject = ("-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:error=EIO:when=9+4")
    [one] = disk(tmp_path / "broken", shelf, "flush", "strace", "-f", "-qq", "-o", str(trace), *inject)
    assert trace.read_text().count("INJECTED") >= 5
    never_less_than_released(one)
    assert set(one["answers"]) | set(one["after"]) == {"released", "StoreError"}


def test_clock_off_by_an_hour_and_jumping_during_the_run(make: Make, tmp_path: Path) -> None:
    """An hour ahead, then an hour behind, then two ahead: nothing that takes time asks the calendar."""
    need(FAKETIME, "libfaketime")
    rig = make(DP, BEAT)
    setting = tmp_path / "shift"
    setting.write_text("+1h")
    env = {**faked(""), "FAKETIME_TIMESTAMP_FILE": str(setting), "FAKETIME_NO_CACHE": "1"}
    env.pop("FAKETIME")
    with process(rig, env=env) as worker:
        there(rig, worker)
        shifts = {1: "-1h", 2: "+2h"}
        records = rig.run(lambda record: setting.write_text(shifts.get(record["round"], "+0")), sound=False)
        answers(worker)
    rig.sound()
    assert dropped(records) == [set(), set(), set()]
    assert all(record["seconds"] < DP.deadline for record in records)


@pytest.mark.parametrize(("shift", "says"), [("+10y", "an expired one: it ended on"), ("-1y", "one not yet valid")])
def test_clock_off_by_years(make: Make, shift: str, says: str) -> None:
    """Certificates are what a calendar is for: the site says that they do not fit its clock, and the others go on."""
    need(FAKETIME, "libfaketime")
    rig = make(Case("dp", rounds=1, deadline=8.0))
    with process(rig, env=faked(shift)) as worker:
        until(lambda: worker.poll() is not None, START)
        records = rig.run(sound=False)
    assert says in (rig.folder / "worker.log").read_text()
    assert "Traceback" not in (rig.folder / "worker.log").read_text()
    assert dropped(records) == [{BAD}]
    assert records[0]["dropped"][BAD] == "not connected"
    assert records[0]["status"] == "counted"


def faked(shift: str) -> dict[str, str]:
    # The monotonic clock is the machine's own: that is what a wrong calendar is.
    return {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME": shift,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


# Files that ask the calendar -> why. Every duration is on the monotonic clock.
CALENDAR = {
    "federation/naming.py": "names of runs", "federation/sums.py": "the age of an attestation's evidence",
    "federation/control.py": "the age of a run, for people", "federation/audit.py": "stamps of the audit log",
    "cli/roster.py": "certificates", "cli/logs.py": "stamps of the log", "store/consents.py": "stamps of consents",
    "store/runs.py": "stamps of runs", "transport/grpc/server.py": "certificates", "transport/grpc/probe.py": "certificates",
    "transport/credentials/credentials.py": "certificates", "transport/longpoll/server.py": "certificates",
    "study/compare.py": "names of folders", "study/search.py": "names of searches",
}  # fmt: skip
ASKS = {"time.time", "time.strftime", "time.localtime", "time.gmtime", "datetime.now", "datetime.utcnow", "date.today"}


def test_durations_never_ask_the_calendar() -> None:
    source = Path(consilia.__file__).parent
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ASKS
    }
    assert found <= set(CALENDAR), f"a reason for each of {sorted(found - set(CALENDAR))}"
