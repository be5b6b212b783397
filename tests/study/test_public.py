"""On public rows nothing is charged and the plan's own data are not touched."""

from pathlib import Path

import pytest
from tests.study.conftest import plan, tuned

from consilia.core.errors import DataError, PlanError
from consilia.study.public import public_search, stand_in
from consilia.study.search import Trial

STAND_IN = {
    "data": {"source": "heart", "split": "exact", "test_fraction": 0.5},
    "sites": {"partition": "iid", "count": 1},
}


def test_the_best_of_all_trials_becomes_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = plan("data.source=csv", "data.path=secret.csv", "data.label=y", "sites.population=ward")
    seen: list[Trial] = []
    found = public_search(own, tuned(public=STAND_IN), data_folder=tmp_path, on_trial=seen.append)
    assert len(found.trials) == 4
    assert found.score == max(trial.score for trial in found.trials if trial.score is not None)
    assert found.plan.data.path == "secret.csv"  # which does not even exist
    assert found.plan.training.rounds == found.values["training.rounds"]
    assert found.plan.privacy == own.privacy
    assert list(tmp_path.iterdir()) == []


def test_it_is_the_same_search_each_time() -> None:
    drawn = []
    for _ in range(2):
        seen: list[Trial] = []
        public_search(plan(), tuned(public=STAND_IN), data_folder=Path(), on_trial=seen.append)
        drawn.append([trial.values for trial in seen])
    assert drawn[0] == drawn[1]


def test_trials_draw_the_plans_noise() -> None:
    public = stand_in(plan("privacy.epsilon=0.5"), tuned(public=STAND_IN))
    assert public.privacy.epsilon == 0.5
    assert (public.evaluation.metrics, public.ledger.max_epsilon) == ("public", None)
    assert public.sites.population == "stand-in"


def test_a_tune_file_without_a_stand_in_is_refused() -> None:
    with pytest.raises(PlanError, match="a stand-in for the plan's data"):
        stand_in(plan(), tuned())


def test_faults_of_the_stand_in_are_told() -> None:
    with pytest.raises(PlanError, match=r"data\.source"):
        stand_in(plan(), tuned(public={"data": {"source": "nowhere"}}))
    missing = {
        "data": {"source": "npz", "path": "nowhere.npz", "split": "official", "classes": ["a", "b"]},
        "sites": {"partition": "iid", "count": 1},
    }
    with pytest.raises(DataError, match=r"nowhere\.npz"):
        public_search(plan(), tuned(public=missing), data_folder=Path(), on_trial=lambda trial: None)
