"""How runs end when things go wrong: nothing lost, nothing certified that is not so."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.rounds.bench import FEDSGD, RECORD, heart

import consilia
from consilia.core.errors import BudgetExceeded, StoreError
from consilia.federation.session import JOURNAL
from consilia.plan.schema import Plan
from consilia.store.ledger_store import SiteStore

NONE = 'unit = "none"'


def limited(plan: Plan, limit: float, only: list[str] | None = None) -> Plan:
    sites = plan.sites.model_copy(update={"only": only})
    return plan.model_copy(update={"ledger": plan.ledger.model_copy(update={"max_epsilon": limit}), "sites": sites})


def spent(home: Path, site: str) -> int:
    path = home / "sites" / f"{site}.sqlite"
    if not path.exists():
        return 0
    with SiteStore.open(path, site) as store:
        return len(store.allotments("heart"))


def test_a_run_is_admitted_at_all_sites_or_at_none(tmp_path: Path) -> None:
    plan, home = heart(rounds=2, reproducible=False), tmp_path / "home"
    epsilon = consilia.check(plan).epsilon
    assert epsilon is not None
    consilia.run(limited(plan, 1.5 * epsilon, ["Switzerland"]), out=tmp_path / "one")
    with pytest.raises(BudgetExceeded):
        consilia.run(limited(plan, 1.5 * epsilon), out=tmp_path / "all")
    assert [spent(home, site) for site in ("Cleveland", "Hungary", "Switzerland")] == [0, 0, 1]
    consilia.run(limited(plan, 1.5 * epsilon, ["Cleveland", "Hungary"]), out=tmp_path / "rest")


def test_a_start_that_fails_spends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object, **__: object) -> None:
        raise StoreError.of("the journal", needs="room on the disk", got="none", hint="Make some")

    with monkeypatch.context() as patch:
        patch.setattr("consilia.federation.session.Journal.create", no_room)
        with pytest.raises(StoreError, match="room on the disk"):
            consilia.run(heart(rounds=2, reproducible=False), out=tmp_path / "run")
    assert spent(tmp_path / "home", "Cleveland") == 0


def test_a_run_that_only_burns_its_schedule_ends_itself(tmp_path: Path) -> None:
    plan = heart(rounds=12, training=FEDSGD, privacy=NONE, aggregation="deadline_seconds = 1e-9")
    found = consilia.run(plan, out=tmp_path / "run").summary
    assert (found["status"], found["skipped"], found["rounds"]) == ("failed", 5, 5)
    assert re.search(r"a round that counts among 5 in a row; got none up to round 5 .*deadline", found["reason"])


def test_a_run_of_void_rounds_that_is_as_long_as_patience_fails_too(tmp_path: Path) -> None:
    plan = heart(rounds=5, training=FEDSGD, privacy=NONE, aggregation="deadline_seconds = 1e-9")
    found = consilia.run(plan, out=tmp_path / "run").summary
    assert (found["status"], found["skipped"], found["rounds"]) == ("failed", 5, 5)
    assert "no round counted" in found["reason"]


def test_a_copied_folder_cannot_noise_the_same_sum_again(tmp_path: Path) -> None:
    plan = heart(rounds=3, privacy=RECORD.replace('"site"', '"server"'), metrics="hidden", reproducible=False)

    def stop(record: dict[str, object]) -> None:
        if record["round"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        consilia.run(plan, out=tmp_path / "run", on_round=stop)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    consilia.resume(tmp_path / "run")
    copy = consilia.resume(tmp_path / "copy")
    assert copy.records[-1]["status"] == "skipped"
    assert set(copy.records[-1]["dropped"].values()) == {"refused: StoreError"}


@pytest.mark.parametrize("damage", ["another run's", "garbage", "empty", "missing", "a folder"])
def test_a_model_that_is_not_the_results_is_refused(damage: str, tmp_path: Path) -> None:
    consilia.run(heart(rounds=1), out=tmp_path / "private")
    consilia.run(heart(rounds=1, privacy=NONE), out=tmp_path / "open")
    model = tmp_path / "private" / "model.safetensors"
    other = (tmp_path / "open" / "model.safetensors").read_bytes()
    model.unlink()
    if damage == "a folder":
        model.mkdir()
    elif damage != "missing":
        model.write_bytes({"another run's": other, "garbage": b"x" * 100, "empty": b""}[damage])
    with pytest.raises(StoreError, match="the model that the run's result speaks of"):
        consilia.resume(tmp_path / "private")


def test_a_ledger_that_vanished_is_not_begun_anew_by_a_resume(tmp_path: Path) -> None:
    def stop(record: dict[str, object]) -> None:
        if record["round"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        consilia.run(heart(rounds=4, reproducible=False), out=tmp_path / "run", on_round=stop)
    (tmp_path / "home" / "sites" / "Hungary.sqlite").unlink()
    for _ in range(2):
        with pytest.raises(StoreError):
            consilia.resume(tmp_path / "run")
        assert spent(tmp_path / "home", "Hungary") == 0
    assert (tmp_path / "run" / JOURNAL).exists()


def test_the_result_names_its_model(tmp_path: Path) -> None:
    first = consilia.run(heart(rounds=1), out=tmp_path / "run")
    again = consilia.resume(tmp_path / "run")
    assert np.array_equal(first.model, again.model)
    assert len(first.summary["model_sha256"]) == 64
