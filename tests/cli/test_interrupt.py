"""A real process and a real Ctrl-C: the run ends with its round, and resuming costs no site a turn."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.rounds.bench import FEDSGD, HEART, RECORD


@pytest.mark.parametrize("stop", ["Ctrl-C", "term"])
def test_a_stop_ends_with_the_round_and_costs_nothing(stop: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(HEART.format(rounds=80, training=FEDSGD, privacy=RECORD, aggregation="", metrics="hidden",
                                 evaluation="", reproducible="false"))  # fmt: skip
    env = {**os.environ, "CONSILIA_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "consilia"]
    with subprocess.Popen(
        [*command, "run", str(plan), "--out", str(tmp_path / "run")],
        env=env,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        seen = ""
        for line in process.stderr:
            seen += line
            if "round" in line:
                process.send_signal(signal.SIGTERM if stop == "term" else signal.SIGINT)
                break
        seen += process.stderr.read()
        assert process.wait(60) == 130, seen
    assert "Ending after this round" in seen
    assert f"--resume {tmp_path / 'run'}" in seen.replace("\n", "")
    assert "Traceback" not in seen
    done = subprocess.run(
        [*command, "run", "--resume", str(tmp_path / "run"), "--json"], env=env, cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rounds"] == 80
    assert "refused" not in done.stderr
