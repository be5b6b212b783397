"""Whole searches on the built-in table: one charge, one winner, nothing of the others."""

import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.study.conftest import plan, tuned

from consilia.core.errors import BudgetExceeded, StoreError
from consilia.dp.event import Event
from consilia.dp.ledger import Relation
from consilia.dp.selection_trials import NegativeBinomial, Poisson
from consilia.federation import session
from consilia.federation.conduct import RunResult
from consilia.store import crash
from consilia.store.journal import Journal
from consilia.store.ledger_store import SiteStore
from consilia.study.offer import offer
from consilia.study.search import Found, Trial, search

HERE = Path()


def _search(home: Path, out: Path, *overrides: str, seen: list[Trial] | None = None, **changes: object) -> Found:
    offered = offer(plan(*overrides), tuned(**changes), HERE)
    heard = [] if seen is None else seen
    return search(offered, data_folder=HERE, home=home, out=out, on_trial=heard.append, on_round=lambda record: None)


def _store(home: Path, site: str = "site-01") -> SiteStore:
    return SiteStore.open(home / "sites" / f"{site}.sqlite", site)


def _draws(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    for law in (NegativeBinomial, Poisson):
        monkeypatch.setattr(law, "draw", lambda self, rng: count)


def test_one_charge_and_one_winner(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _draws(monkeypatch, 4)
    seen: list[Trial] = []
    found = _search(home, tmp_path / "out", seen=seen)
    scores = [trial.score for trial in seen if trial.score is not None]
    assert len(scores) == 4
    winner = found.winner
    assert winner is not None
    assert winner.summary["accuracy"] == max(scores)
    assert found.values in [dict(trial.values) for trial in seen]
    assert (winner.summary["epsilon"], winner.summary["against"]) == (pytest.approx(2.0, rel=1e-3), "world")
    assert winner.summary["epsilon_against"]["server"] is None
    assert all(record["epsilon_spent"] == winner.summary["epsilon"] for record in winner.records)
    assert winner.folder == tmp_path / "out" / "winner"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["winner"]
    text = (winner.folder / "result.json").read_text()
    assert not any(word in text for word in ("4 trials", "of 4", "trials/"))
    with _store(home) as store:
        ((relation, (epsilon, delta)),) = store.spent("ward").items()
        assert (relation, delta) == (Relation(relation.adjacency, "world"), 1e-4)
        assert epsilon == winner.summary["epsilon"]
        runs = store.allotments("ward")
        assert [len(runs), sum(run.within == runs[0].run for run in runs)] == [5, 4]
        kept = [run.run for run in runs[1:] if _kept(store, run.run)]
        assert kept == [winner.summary["run"]]
        store.verify("ward")


def _kept(store: SiteStore, run: str) -> bool:
    from sqlalchemy import select

    from consilia.store.tables import sealed

    with store._engine.connect() as connection:
        return connection.execute(select(sealed.c.run).where(sealed.c.run == run)).first() is not None


def test_a_second_search_is_a_second_charge_and_a_limit_refuses_it(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _draws(monkeypatch, 1)
    _search(home, tmp_path / "a", "ledger.max_epsilon=3")
    with pytest.raises(BudgetExceeded, match="at most 3 over all runs"):
        _search(home, tmp_path / "b", "ledger.max_epsilon=3")
    assert not (tmp_path / "b").exists()
    with _store(home) as store:
        assert len(store.allotments("ward")) == 2


def test_where_no_trial_is_drawn_the_search_is_charged_and_publishes_nothing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _draws(monkeypatch, 0)
    found = _search(home, tmp_path / "out", distribution="poisson")
    assert (found.winner, found.plan, found.values) == (None, None, None)
    with _store(home) as store:
        assert len(store.spent("ward")) == 1


def test_trials_without_a_score_lose(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _draws(monkeypatch, 3)
    scores = iter([math.nan, 0.7, None])
    real = session.start

    def start(*given: object, **named: object) -> RunResult:
        result = real(*given, **named)  # type: ignore[arg-type]
        result.summary["accuracy"] = next(scores)
        return result

    monkeypatch.setattr(session, "start", start)
    seen: list[Trial] = []
    found = _search(home, tmp_path / "out", seen=seen)
    assert found.winner is not None
    assert found.winner.summary["accuracy"] == 0.7
    assert [trial.score for trial in seen] == [None, None, None, 0.7, None, None]


def test_the_best_is_the_least_in_loss(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _draws(monkeypatch, 3)
    seen: list[Trial] = []
    found = _search(home, tmp_path / "out", seen=seen, score="loss")
    assert found.winner is not None
    assert -found.winner.summary["loss"] == max(trial.score for trial in seen if trial.score is not None)


def test_a_score_that_is_charged_is_part_of_every_trial(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _draws(monkeypatch, 2)
    found = _search(home, tmp_path / "out", "evaluation.metrics=charged", "evaluation.noise_multiplier=20",
                    search={"training.server_learning_rate": [0.1, 1.0]})  # fmt: skip
    assert found.winner is not None
    with _store(home) as store:
        trial = store.allotments("ward")[1]
        assert [times for event, times in trial.events if event == Event(20.0)] == [3]
        assert store.charged(trial.run) == list(trial.events)


def test_several_sites_are_charged_each(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _draws(monkeypatch, 2)
    found = _search(home, tmp_path / "out", "sites.count=3")
    assert found.winner is not None
    for site in ("site-01", "site-02", "site-03"):
        with _store(home, site) as store:
            assert len(store.allotments("ward")) == 3
            assert found.winner.summary["epsilon"] == next(iter(store.spent("ward").values()))[0]


def test_a_folder_that_holds_something_is_left_alone(home: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes").write_text("mine")
    with pytest.raises(StoreError, match="an empty folder"):
        _search(home, tmp_path / "out")
    assert not (home / "sites").exists()


def test_candidates_come_from_a_secret_stream(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _draws(monkeypatch, 2)
    drawn = []
    for index in range(2):
        seen: list[Trial] = []
        _search(home, tmp_path / str(index), seen=seen)
        drawn.append([trial.values["training.server_learning_rate"] for trial in seen])
    assert drawn[0] != drawn[1]


WORKER = """
import sys
from pathlib import Path
from consilia.dp.selection_trials import NegativeBinomial
from consilia.study.offer import offer
from consilia.study.search import search
from tests.study.conftest import plan, tuned
NegativeBinomial.draw = lambda self, rng: 3
folder = Path(sys.argv[1])
offered = offer(plan(), tuned(), Path())
search(offered, data_folder=Path(), home=folder / "home", out=folder / "out", on_trial=print, on_round=print)
"""

KILLED = [
    "search.allotted:1", "site.after_reserve:2", "site.after_commit:3", "coordinator.after_commit:3", "search.scored:1",
    "search.scored:2", "ledger.forget.before:1", "ledger.forget.written:1", "ledger.forget.committed:2",
]  # fmt: skip


@pytest.mark.parametrize("place", KILLED)
def test_a_search_killed_at_any_place_stays_charged_and_publishes_nothing(tmp_path: Path, place: str) -> None:
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, crash.SETTING: place, "PYTHONPATH": str(root)}
    ended = subprocess.run([sys.executable, "-c", WORKER, str(tmp_path)], env=environment, capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    assert not (tmp_path / "out" / "winner").exists()
    with _store(tmp_path / "home") as store:
        store.verify("ward")
        ((epsilon, delta),) = store.spent("ward").values()
        assert 1.99 < epsilon <= 2.0
        assert delta == 1e-4
        search_run, *trials = store.allotments("ward")
        assert search_run.search is not None
        assert len(trials) <= search_run.search.trials == 3
        for trial in trials:  # what was charged is never more than what was admitted
            allowed = {event.digest: times for event, times in trial.events}
            assert all(times <= allowed[event.digest] for event, times in store.charged(trial.run))
    for folder in (tmp_path / "out" / "trials").glob("*/journal.sqlite"):
        if Journal.open(folder, read_only=True).result is None:
            with pytest.raises(StoreError, match="a run of its own; got a trial of search"):
                session.go_on(folder.parent, None)


def test_the_noise_of_a_trial_is_drawn_anew(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _draws(monkeypatch, 2)
    models = []
    real = session.start

    def start(*given: object, **named: object) -> RunResult:
        models.append(real(*given, **named))  # type: ignore[arg-type]
        return models[-1]

    monkeypatch.setattr(session, "start", start)
    _search(home, tmp_path / "out", search={"training.server_learning_rate": [1.0]})
    assert not np.array_equal(models[0].model, models[1].model)


def test_a_full_disk_within_a_trial_says_what_holds_for_a_search(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _draws(monkeypatch, 2)
    begun = session.start

    def fails_later(*arguments: object, **named: object) -> object:
        begun(*arguments, **named)  # type: ignore[arg-type]
        raise StoreError.of("the journal", needs="room", got="a full disk", hint="Free some space, then resume")

    monkeypatch.setattr(session, "start", fails_later)
    with pytest.raises(StoreError, match="search stays charged and publishes nothing") as caught:
        _search(home, tmp_path / "out")
    assert "resume" not in str(caught.value)
    assert list((tmp_path / "out").iterdir()) == []
    with _store(home) as store:
        assert store.spent("ward")
