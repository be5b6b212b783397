"""What the report and `consilia check` say of rounds that wait for no one."""

from pathlib import Path

import pytest
from tests.rounds.asynchronous.stage import MASKS, SITES, claim, slow

import consilia
from consilia.cli.main import main
from consilia.federation.simulation import prepare
from consilia.plan.facts import facts
from consilia.report.history import ages
from consilia.report.leaves import leaves
from consilia.report.mechanism import mechanism

TEXT = """
[data]
source = "heart"
split = "exact"
test_fraction = 0.34
[sites]
counts = "public"
[training]
rounds = 6
algorithm = "fedavg"
batch = "full"
local_steps = 2
[secure_sum]
mode = "masks"
[aggregation]
mode = "two-phase"
ready = 3
max_participations = 6
[privacy]
unit = "site"
noise = "distributed"
noise_multiplier = 8.0
delta = 1e-3
delta_reason = "a test"
clip_norm = 1.0
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONSILIA_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.toml").write_text(TEXT)
    return tmp_path


def test_a_run_from_the_command_line_and_its_report(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "plan.toml"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "two-phase: 6 rounds of the 3 sites that are ready first" in said
    assert "a site begins at most 6" in said
    result = consilia.run(consilia.load(Path("plan.toml")), out=home / "run")
    assert result.summary["status"] == "done"
    assert [record["status"] for record in result.records] == ["counted"] * 6
    # Sites of one process train in their turns: who had none in one round is first in the next.
    assert [sorted(record["staleness"].values()) for record in result.records[:3]] == [[0, 0, 0], [0, 0, 1], [0, 0, 1]]
    behind = ages(result.records)
    assert set(behind) == set(SITES)
    assert main(["report", "run"]) == 0
    page = (home / "run" / "report.html").read_text()
    assert "Steps behind, mean" in page
    assert "for all updates that it may begin" in page
    assert "at most 6 updates begun" in page


def test_what_waits_is_among_what_leaves_and_what_is_enforced(tmp_path: Path) -> None:
    two = facts(prepare(slow(secure=MASKS, privacy=claim("site", "distributed")), tmp_path).run_plan)
    assert any(row.label == "Readiness" for row in leaves(two).rows)
    assert any("refuses one more" in (row.note or "") for row in mechanism(two).rows)
    buffered = facts(prepare(slow(mode="buffered", privacy=claim("site", "site")), tmp_path).run_plan)
    assert not any(row.label == "Readiness" for row in leaves(buffered).rows)
