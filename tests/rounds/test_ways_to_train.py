"""Every way to train runs end to end, twice to the same bits, and learns."""

from pathlib import Path

import numpy as np
import pytest
from tests.rounds.bench import FEDAVG, FEDSGD, RECORD, SITE, heart

import consilia
from consilia.core.errors import BudgetExceeded, PlanError, StoreError

NONE = 'unit = "none"'
POISSON = 'algorithm = "fedavg"\nbatch = "poisson"\nsampling_rate = 0.2\nlocal_steps = 3\nlearning_rate = 0.3'
WAYS = {
    "fedavg": {"training": FEDAVG, "privacy": NONE},
    "fedprox": {"training": FEDAVG + "\nproximal_mu = 0.1", "privacy": NONE},
    "scaffold": {"training": FEDAVG + "\nscaffold = true", "privacy": NONE},
    "scaffold, site unit": {"training": FEDAVG + "\nscaffold = true", "privacy": SITE + "\ncontrol_clip_norm = 0.5"},
    "local adam": {"training": FEDAVG.replace("0.1", "0.01") + '\noptimizer = "adam"', "privacy": NONE},
    "local momentum": {"training": FEDAVG + "\nmomentum = 0.9", "privacy": NONE},
    "server momentum": {"training": FEDSGD + '\nserver_optimizer = "momentum"', "privacy": NONE},
    "adagrad": {"training": FEDSGD + '\nserver_optimizer = "adagrad"', "privacy": NONE},
    "adam": {"training": FEDSGD + '\nserver_optimizer = "adam"', "privacy": NONE},
    "yogi": {"training": FEDSGD + '\nserver_optimizer = "yogi"', "privacy": NONE},
    "poisson dp-sgd": {"training": POISSON, "privacy": RECORD},
    "fixed batches, record": {"training": FEDAVG, "privacy": RECORD},
    "record, noise at the server": {"training": FEDSGD, "privacy": RECORD.replace('"site"', '"server"')},
    "site unit, noise at the site": {"training": FEDAVG, "privacy": SITE.replace('"server"', '"site"')},
    "count": {"training": FEDSGD, "privacy": RECORD, "aggregation": 'selection = "count"\ncount = 2'},
    "fraction": {"training": FEDSGD, "privacy": NONE, "aggregation": 'selection = "fraction"\nfraction = 0.5'},
    "poisson sites": {"training": FEDSGD, "privacy": RECORD, "aggregation": 'selection = "poisson"\nfraction = 0.6'},
    "tilted": {"training": FEDSGD, "privacy": NONE, "aggregation": 'selection = "tilted"\ncount = 2'},
    "uniform weights": {"training": FEDSGD, "privacy": RECORD, "aggregation": 'weights = "uniform"'},
    "capped weights": {"training": FEDSGD, "privacy": RECORD, "aggregation": 'weights = "capped"\ncap = 100'},
    "best model": {"training": FEDSGD + '\nkeep = "best"', "privacy": RECORD},
    "charged metrics": {
        "training": FEDSGD,
        "privacy": RECORD,
        "metrics": "charged",
        "evaluation": "noise_multiplier = 3.0",
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_a_way_to_train(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = heart(rounds=6, **WAYS[way])  # type: ignore[arg-type]
    first = consilia.run(plan, out=tmp_path / "first")
    monkeypatch.setenv("CONSILIA_HOME", str(tmp_path / "another home"))
    second = consilia.run(plan, out=tmp_path / "second")
    assert np.array_equal(first.model, second.model), "the reproducible mode is bit for bit"
    assert np.isfinite(first.model).all()
    assert len(first.records) == 6
    assert first.summary["epsilon"] is None
    statuses = {record["status"] for record in first.records}
    assert "counted" in statuses
    accuracies = [record["accuracy"] for record in first.records if record["accuracy"] is not None]
    if WAYS[way]["privacy"] == NONE:
        assert max(accuracies) > 0.55
        assert any(record["train_loss"] is not None for record in first.records)
    else:
        assert all(record["train_loss"] is None for record in first.records)


def test_fedbn_keeps_norm_layers_at_the_site(tmp_path: Path) -> None:
    plan = heart(rounds=3, training=FEDAVG, privacy=NONE)
    sizes = {}
    for local in ("none", "norm"):
        model = plan.model.model_copy(update={"name": "tests.rounds.models:with_norm", "local_layers": local})
        sizes[local] = consilia.run(plan.model_copy(update={"model": model}), out=tmp_path / local).model.size
    # 8 weights and 8 biases of the norm layer, and its two running statistics of 8, stay at the sites.
    assert sizes["none"] - sizes["norm"] == 4 * 8


def test_a_run_of_another_version_is_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(_record: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        consilia.run(heart(rounds=3), out=tmp_path / "run", on_round=stop)
    for module in ("plan.check", "federation.session"):
        monkeypatch.setattr(f"consilia.{module}.VERSION", "99.0")
    with pytest.raises(PlanError, match=r"plan, data and version it began with .*Consilia 0.*got .*Consilia 99.0"):
        consilia.resume(tmp_path / "run")


def test_a_second_run_needs_another_folder_and_a_finished_one_is_only_read(tmp_path: Path) -> None:
    plan = heart(rounds=2)
    first = consilia.run(plan, out=tmp_path / "run")
    with pytest.raises(StoreError, match="without a run"):
        consilia.run(plan, out=tmp_path / "run")
    again = consilia.resume(tmp_path / "run")
    assert np.array_equal(first.model, again.model)
    assert again.summary == first.summary
    with pytest.raises(StoreError, match="needs a run"):
        consilia.resume(tmp_path / "nothing")


def test_the_lifetime_budget_is_shared_by_all_runs_and_refuses_before_the_start(tmp_path: Path) -> None:
    base = heart(rounds=2, reproducible=False)

    def plan(limit: float) -> consilia.Plan:
        return base.model_copy(update={"ledger": base.ledger.model_copy(update={"max_epsilon": limit})})

    epsilon = consilia.check(plan(100.0)).epsilon
    assert epsilon is not None
    consilia.run(plan(2.5 * epsilon), out=tmp_path / "1")
    consilia.run(plan(2.5 * epsilon), out=tmp_path / "2")
    with pytest.raises(BudgetExceeded, match="heart"):
        consilia.run(plan(2.5 * epsilon), out=tmp_path / "3")
    assert not (tmp_path / "3" / "journal.sqlite").exists()
