"""What operators may ask, and what they are told: nothing that is not JSON, and no path or row."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.federation.hospitals import HOSPITALS, POLICY, found, plan_text
from tests.federation.local import consortium

from consilia.core.errors import PlanError
from consilia.plan.load import canonical, from_text

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")


def test_what_nobody_understands_is_refused(tmp_path: Path) -> None:
    with consortium(found(tmp_path), HOSPITALS) as everyone:
        for do in ("delete", "", None, ["submit"], {"a": 1}, "x" * 10_000):
            with pytest.raises(PlanError, match="the coordinator needs submit, status or stop") as caught:
                everyone.ask(do)  # type: ignore[arg-type]
            assert len(str(caught.value)) < 300


@pytest.mark.parametrize("run", ["../../etc", "a/b", ".a", "", None, 7, "a" * 129])
def test_a_run_that_could_be_no_folder_is_refused(tmp_path: Path, run: object) -> None:
    with consortium(found(tmp_path), HOSPITALS) as everyone:
        with pytest.raises(PlanError, match="request key run needs the id of a run"):
            everyone.ask("submit", run=run, plan=canonical(from_text(plan_text())))
        assert everyone.ask("status")["runs"] == []


@pytest.mark.parametrize("plan", [None, [], "heart.toml", {}, {"data": {"source": "heart"}, "surprise": {}}])
def test_what_is_no_plan_is_refused(tmp_path: Path, plan: object) -> None:
    with consortium(found(tmp_path), HOSPITALS) as everyone:
        with pytest.raises(PlanError):
            everyone.ask("submit", run="heart-1", plan=plan)
        assert everyone.ask("status")["runs"] == []


def test_every_fault_of_a_plan_is_told_at_submission(tmp_path: Path) -> None:
    text = plan_text().replace('"Hungary", "Switzerland"', '"Hungary", "Switzerlnd"').replace("clip_norm = 1.0", "")
    with consortium(found(tmp_path), HOSPITALS) as everyone:
        with pytest.raises(PlanError) as caught:
            everyone.submit("heart-1", text)
        told = str(caught.value)
        assert "plan key sites.only needs sites on the roster; got 'Switzerlnd'" in told
        assert "On it are: Cleveland, Hungary, Switzerland" in told
        assert "privacy.clip_norm" in told


def test_where_the_files_of_an_operator_lie_is_not_kept(tmp_path: Path) -> None:
    with consortium(found(tmp_path), HOSPITALS) as everyone:
        plan: Any = canonical(from_text(plan_text()))
        plan["model"]["initial"] = "/home/olga/secret/first.safetensors"
        everyone.ask("submit", run="heart-1", plan=plan)
        [queued] = everyone.service.queue.all()
        assert json.loads(queued.plan_json)["model"]["initial"] == "first.safetensors"
        assert "olga/secret" not in queued.plan_json


def test_a_run_from_submission_to_its_end(tmp_path: Path) -> None:
    with consortium(found(tmp_path), HOSPITALS) as everyone:
        everyone.hub.away = {"Switzerland"}
        everyone.submit("heart-1", plan_text())
        queued = everyone.run("heart-1")
        assert (queued["status"], queued["by"], queued["sites"], queued["rounds"]) == ("queued", "olga", None, None)
        everyone.service._look_after(everyone.service.queue.open()[0], everyone.stop)
        asked = everyone.run("heart-1")
        assert [site["answer"] for site in asked["sites"]] == [
            "unasked"
        ] * 3  # surveyed, all but one: too early to offer
        everyone.hub.away = set()
        everyone.work()
        ended = everyone.run("heart-1")
        assert (ended["status"], ended["round"], ended["rounds"]) == ("done", 2, 2)
        assert 0 < ended["epsilon"] <= 1
        assert ended["digest"]
        assert 0 <= ended["accuracy"] <= 1


def test_who_is_there(tmp_path: Path) -> None:
    with consortium(found(tmp_path), HOSPITALS) as everyone:
        everyone.hub.away = {"Hungary"}
        found_now = everyone.ask("status")
        assert found_now["consortium"] == "heart-study"
        assert {one["name"]: one["connected"] for one in found_now["sites"]} == {
            "Cleveland": True, "Hungary": False, "Switzerland": True,
        }  # fmt: skip
        assert all(one["certificate_days"] > 30 for one in found_now["sites"])


def test_a_policy_in_the_way_is_told_site_by_site(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "consilia.coordinator")
    with consortium(found(tmp_path, policy=POLICY + "[sites]\nleast = 4\n"), HOSPITALS) as everyone:
        ended = everyone.ran("heart-1", plan_text())
        assert ended["status"] == "failed"
        first, *rest = ended["reason"].splitlines()
        assert first.startswith("0 of 3 sites may take part")
        assert [line.partition(": ")[0] for line in rest] == list(HOSPITALS)
        assert all("sites.least" in line for line in rest)
    assert f"run heart-1 ended before its first round: failed: {ended['reason']}" in caplog.text
