"""A run whose rounds do not count gives up: at its sites, in its journal, and in what every command says of it."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.rounds.bench import heart

import consilia
from consilia.aggregate.optimizer import Moments, ServerOptimizer
from consilia.cli.main import main
from consilia.core.update import Vector
from consilia.federation.conduct import RunResult
from consilia.federation.session import JOURNAL
from consilia.rounds.coordinator import Coordinator
from consilia.rounds.gather import Gathered
from consilia.rounds.records import RoundRecord
from consilia.store.journal import Journal
from consilia.store.ledger_store import SiteStore
from consilia.study.compare import compare

SITES = ("Cleveland", "Hungary", "Switzerland", "VA Long Beach")


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSILIA_HOME", str(tmp_path / "home"))


@pytest.fixture
def diverges(monkeypatch: pytest.MonkeyPatch) -> None:
    step = ServerOptimizer.step

    def away(self: ServerOptimizer, model: Vector, update: Vector, state: Moments) -> tuple[Vector, Moments]:
        moved, moments = step(self, model, update, state)
        return moved * np.float32(np.inf), moments

    monkeypatch.setattr(ServerOptimizer, "step", away)


@pytest.fixture
def given_up(tmp_path: Path, diverges: None) -> RunResult:
    return consilia.run(heart(rounds=9, reproducible=False), out=tmp_path / "run")


def test_it_has_failed_and_says_why(given_up: RunResult) -> None:
    with Journal.open(given_up.folder / JOURNAL, read_only=True) as journal:
        assert (journal.status, journal.round, journal.result) == ("failed", 5, given_up.summary)
        assert journal.reason is not None
        assert "none up to round 5 (the step was not finite" in journal.reason
        assert "resume" not in journal.reason
    assert json.loads((given_up.folder / "result.json").read_text()) == given_up.summary


def test_its_sites_hear_of_the_end_and_keep_what_was_charged(given_up: RunResult, tmp_path: Path) -> None:
    assert set(given_up.summary["ledger_heads"]) == set(SITES)
    for site in SITES:
        path = tmp_path / "home" / "sites" / f"{site}.sqlite"
        with SiteStore.open(path, site) as store:
            assert sum(times for _, times in store.charged(given_up.summary["run"])) == 5
        with closing(sqlite3.connect(path)) as sql:
            assert sql.execute("SELECT count(*) FROM entries WHERE kind = 'close'").fetchone() == (1,)


def test_resuming_it_reads_how_it_ended_and_trains_nothing(given_up: RunResult) -> None:
    def never(record: dict[str, object]) -> None:
        raise AssertionError(record)

    again = consilia.resume(given_up.folder, on_round=never)
    assert again.summary == given_up.summary
    assert np.array_equal(again.model, given_up.model)


def test_the_model_is_the_last_good_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = consilia.run(heart(rounds=2), out=tmp_path / "short")
    real = Coordinator._gather

    def silent(self: Coordinator, record: RoundRecord) -> Gathered:
        gathered = real(self, record)
        return gathered if record.round <= 2 else replace(gathered, total=None, reason="nobody was there")

    monkeypatch.setattr(Coordinator, "_gather", silent)
    ended = consilia.run(heart(rounds=9), out=tmp_path / "run")
    assert (ended.summary["status"], ended.summary["rounds"], ended.summary["skipped"]) == ("failed", 7, 5)
    assert np.array_equal(ended.model, short.model)


@pytest.mark.parametrize("form", ["text", "json"])
def test_commands_say_so(form: str, given_up: RunResult, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--json"] if form == "json" else []
    assert main(["run", "--resume", str(given_up.folder), *more]) == 4
    said = capsys.readouterr().out
    assert "failed" in said
    assert "the step was not finite" in " ".join(said.split())
    assert main(["report", str(given_up.folder)]) == 0
    page = (given_up.folder / "report.html").read_text(encoding="utf-8")
    assert "failed: the run needs a round that counts" in page


@pytest.mark.usefixtures("diverges")
def test_a_comparison_leaves_it_out_with_its_reason(tmp_path: Path) -> None:
    plan = heart(rounds=9)
    with pytest.raises(consilia.PlanError, match=r"its run needs rounds that count; got .*the step was not finite"):
        compare(plan, seeds=1, public_rows=True, data_folder=tmp_path, out=tmp_path / "out", on_run=lambda *_: None)


@pytest.mark.parametrize("fault", [consilia.ProtocolError, consilia.PlanError])
def test_whatever_the_rounds_end_with_is_the_reason(
    fault: type[consilia.ConsiliaError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> None:
        raise fault.of("a round", needs="sense", got="none", hint="Ask")

    monkeypatch.setattr(Coordinator, "_step", breaks)
    ended = consilia.run(heart(rounds=2), out=tmp_path / "run")
    assert (ended.summary["status"], ended.summary["reason"]) == ("failed", "a round needs sense; got none. Ask.")


def test_an_error_of_the_caller_s_own_is_the_caller_s_and_the_run_may_go_on(tmp_path: Path) -> None:
    def own(_record: object) -> None:
        raise consilia.PlanError.of("the caller", needs="nothing of this run", got="its own fault", hint="Mend it")

    with pytest.raises(consilia.PlanError, match="its own fault"):
        consilia.run(heart(rounds=3), out=tmp_path / "run", on_round=own)
    with Journal.open(tmp_path / "run" / JOURNAL, read_only=True) as journal:
        assert (journal.status, journal.round) == ("running", 1)
    assert consilia.resume(tmp_path / "run").summary["status"] == "done"
