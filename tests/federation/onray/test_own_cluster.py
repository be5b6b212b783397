"""A cluster of a run's own: begun and ended with it, out of others' reach; and what is said where there is none."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.federation.onray.conftest import ROOT

import consilia
from consilia.core.errors import PlanError, TransportError
from consilia.federation import engines

PLAN = ROOT / "examples" / "plans" / "heart-open.toml"
SET = ["training.rounds=150", "run.reproducible=true"]
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
LISTENS = "0A"


def processes(session: int) -> list[int]:
    """Return the processes of a session that are not over."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, belongs = place.read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(belongs) == session and state != "Z":
            found.append(int(place.parent.name))
    return found


def listening(pids: list[int]) -> set[str]:
    """Return the addresses, in the kernel's hexadecimal, that these processes listen at."""
    sockets = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                sockets.update(re.findall(r"socket:\[(\d+)\]", os.readlink(link)))
            except OSError:
                continue
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {row[1].partition(":")[0] for row in rows if row[3] == LISTENS and row[9] in sockets}


def folders(pids: list[int]) -> set[Path]:
    """Return the folders of clusters that these processes were started with."""
    words = "\0".join(Path(f"/proc/{pid}/cmdline").read_text() for pid in pids)
    return {Path(found) for found in re.findall(r"/[^\0 =]*/ray-[^/\0 ]*(?=/r/)", words)}


def test_it_is_nobody_else_s_and_gone_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C as a terminal sends it, to the whole group: the run ends with its round, and goes on without Ray."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"CONSILIA_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "consilia", "run", str(PLAN), "--seed", "1", "--json", "--engine", "ray"]
    command += ["--out", str(tmp_path / "run"), *(word for one in SET for word in ("--set", one))]
    said = b""
    with subprocess.Popen(
        command, env=environment, cwd=tmp_path, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        try:
            assert run.stderr is not None
            while b"round" not in said:
                line = run.stderr.readline()
                assert line, said
                said += line
            addresses = listening(processes(run.pid))
            (folder,) = folders(processes(run.pid))
            mode = stat.S_IMODE(folder.stat().st_mode)
            os.killpg(run.pid, signal.SIGINT)
            out, more = run.communicate(timeout=60)
        finally:
            left = processes(run.pid)
            for pid in left:
                os.kill(pid, signal.SIGKILL)
    assert len(addresses) >= 1
    assert addresses <= LOOPBACK
    assert mode == 0o700
    assert (run.returncode, left) == (130, []), said + more
    assert "consilia run --resume" in json.loads(out)["error"]["problems"][0]["hint"]
    assert not folder.exists()
    monkeypatch.setenv("CONSILIA_HOME", str(tmp_path / "whole"))
    resumed = consilia.resume(tmp_path / "run")
    whole = consilia.run(consilia.load(PLAN, [*SET, "run.seed=1"]), tmp_path / "whole")
    assert np.array_equal(resumed.model, whole.model)


def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = consilia.load(PLAN)
    with pytest.raises(PlanError, match="needs process or ray; got 'fast'"):
        consilia.run(plan, tmp_path / "run", engine="fast")
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    with pytest.raises(PlanError, match=re.escape('pip install "consilia[ray]"')):
        consilia.run(plan, tmp_path / "run", engine="ray")
    with pytest.raises(PlanError, match=re.escape('pip install "consilia[ray]"')):
        consilia.resume(tmp_path / "run", engine="ray")


@pytest.mark.parametrize(
    ("variable", "value", "needs"),
    [
        ("RAY_ADDRESS", "ray://127.0.0.1:10001", "host:port"),
        ("RAY_ADDRESS", "nowhere", "host:port"),
        ("RAY_AUTH_MODE", "disabled", "token"),
    ],
)
def test_a_cluster_that_will_not_do_is_refused_before_anything_is_charged(
    variable: str, value: str, needs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONSILIA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(variable, value)
    with pytest.raises(TransportError, match=f"variable {variable} needs .*{needs}"):
        consilia.run(consilia.load(PLAN), tmp_path / "run", engine="ray")
    assert not list((tmp_path / "run").iterdir())
    assert not (tmp_path / "home").exists()
