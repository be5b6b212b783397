"""From a plan to a finished run and what one does with it: report, ledgers, export."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from consilia import api

Call = Callable[..., Any]
SHORT = ("--set", "training.rounds=3", "--set", "training.keep=last")
FORM = {
    "accuracy", "accuracy_mean_over_sites", "per_site", "epsilon", "epsilon_against", "delta", "unit", "rounds",
    "bytes_up", "bytes_down", "seconds", "run",
}  # fmt: skip


def test_the_form_that_scripts_read(call: Call, heart: str) -> None:
    ahead = call("check", heart, *SHORT, "--json").document
    outcome = call("run", heart, *SHORT, "--out", "mine", "--seed", "5", "--json")
    assert outcome.code == 0
    found = outcome.document
    assert set(found) >= FORM
    assert (found["folder"], found["report"]) == ("mine", "mine/report.html")
    assert found["epsilon"] == ahead["epsilon"] <= 1
    assert set(found["epsilon_against"]) == {"server", "server+colluding-sites", "other-sites", "world"}
    assert all(set(score) >= {"n", "accuracy"} for score in found["per_site"].values())
    assert {name for name in found["per_site"]} == {site["name"] for site in ahead["sites"]}
    assert "round 3 of 3" in outcome.err
    for way in ("up", "down"):
        assert found[f"bytes_{way}"] == pytest.approx(ahead["forecast"][way], rel=0.1)
    assert {"journal.sqlite", "result.json", "model.safetensors", "report.html"} <= {
        p.name for p in Path("mine").iterdir()
    }


def test_seed_and_set_reach_the_plan(call: Call, heart: str) -> None:
    call("run", heart, *SHORT, "--out", "mine", "--seed", "5", "--json")
    page = Path("mine/report.html").read_text(encoding="utf-8")
    assert "seed = 5" in page
    assert "rounds = 3" in page


def test_text_for_people(call: Call, heart: str) -> None:
    outcome = call("run", heart, *SHORT)
    assert outcome.code == 0
    for words in (
        "Switzerland",
        "mean over sites",
        "variance",
        "epsilon 1 at delta 0.001 for one record",
        "report.html",
    ):
        assert words in outcome.out
    folder = next(Path("runs").iterdir())
    assert str(folder / "report.html") in outcome.out
    assert max(len(line) for line in outcome.out.splitlines() if "report" not in line) <= 80


def test_a_finished_run_resumes_to_its_result(call: Call, heart: str) -> None:
    first = call("run", heart, *SHORT, "--out", "mine", "--json").document
    again = call("run", "--resume", "mine", "--json")
    assert again.code == 0
    assert again.document == first


def test_hidden_metrics_read_hidden(call: Call, heart: str) -> None:
    outcome = call("run", heart, *SHORT, "--set", "evaluation.metrics=hidden", "--json", "--out", "mine")
    assert outcome.document["accuracy"] is None
    assert set(outcome.document["per_site"].values()) == {"hidden"}
    text = call("run", "--resume", "mine").out
    assert text.count("hidden") >= 10  # test rows and accuracy of four sites, the total, mean and variance


def test_a_folder_is_used_once(call: Call, heart: str) -> None:
    call("run", heart, *SHORT, "--out", "mine", "--json")
    outcome = call("run", heart, *SHORT, "--out", "mine", "--json")
    assert outcome.code == 5
    assert "--resume mine" in outcome.problems[0]["hint"]


def test_ledgers_show_what_runs_cost_and_verify(call: Call, heart: str) -> None:
    run = call("run", heart, *SHORT, "--json").document
    shown = call("ledger", "show", "--json").document["ledgers"]
    assert [entry["site"] for entry in shown] == sorted(run["per_site"])
    for entry in shown:
        assert entry["runs"] == [
            {"run": run["run"], "adjacency": "add-remove", "against": "server", "epsilon": run["epsilon"],
             "delta": 1e-3, "charged": 3, "allotted": 3}
        ]  # fmt: skip
        assert entry["spent"] == [
            {"adjacency": "add-remove", "against": "server", "epsilon": run["epsilon"], "delta": 1e-3}
        ]
        assert entry["limit"] is None
        assert entry["head"] == run["ledger_heads"][entry["site"]]
    text = call("ledger", "show", "--site", "Hungary").out
    assert "Hungary" in text
    assert "Cleveland" not in text
    heads = call("ledger", "verify", "--json").document["verified"]
    assert {row["site"]: row["head"] for row in heads} == run["ledger_heads"]
    assert call("ledger", "verify", "--site", "Hungary", "--head", run["ledger_heads"]["Hungary"]).code == 0


def test_the_steward_sets_a_limit_that_plans_cannot_raise(call: Call, heart: str) -> None:
    run = call("run", heart, *SHORT, "--json").document
    changed = call("ledger", "limit", "1.5", "--site", "Hungary", "--population", "heart", "--json").document
    assert (changed["limit"], changed["site"], len(changed["runs"])) == (1.5, "Hungary", 1)
    assert changed["head"] != run["ledger_heads"]["Hungary"]
    refused = call("run", heart, *SHORT, "--set", "ledger.max_epsilon=100", "--json")
    assert refused.code == 3
    assert "at most 1.5 over all runs" in refused.problems[0]["needs"]
    shown = " ".join(call("ledger", "limit", "100", "--site", "Hungary", "--population", "heart").out.split())
    assert "population heart, limit 100 over all runs" in shown
    assert "all runs, add-remove against server" in shown
    assert call("run", heart, *SHORT, "--json").code == 0
    assert call("ledger", "verify", "--site", "Hungary", "--head", run["ledger_heads"]["Hungary"]).code == 0
    for wrong in (("0", "Hungary"), ("inf", "Hungary"), ("2", "Bern")):
        outcome = call("ledger", "limit", wrong[0], "--site", wrong[1], "--population", "heart", "--json")
        assert (outcome.code, len(outcome.problems)) == (2 if wrong[1] == "Hungary" else 5, 1)
    assert "no run yet" in call("ledger", "limit", "2", "--site", "Hungary", "--population", "new").out


def test_a_reproducible_run_shows_as_unbounded(call: Call, heart: str) -> None:
    call("run", heart, *SHORT, "--set", "run.reproducible=true", "--json")
    entry = call("ledger", "show", "--site", "Hungary", "--json").document["ledgers"][0]
    assert [row["epsilon"] for row in (*entry["runs"], *entry["spent"])] == [None, None]
    assert "none" in call("ledger", "show", "--site", "Hungary").out


def test_a_rolled_back_or_changed_ledger_is_found(call: Call, heart: str) -> None:
    ledger = Path(".consilia/sites/Hungary.sqlite")
    call("run", heart, *SHORT, "--json")
    kept = ledger.read_bytes()
    second = call("run", heart, *SHORT, "--json").document
    assert call("ledger", "verify", "--json").code == 0
    ledger.write_bytes(kept)
    for rest in ledger.parent.glob("Hungary.sqlite-*"):
        rest.unlink()
    outcome = call("ledger", "verify", "--site", "Hungary", "--head", second["ledger_heads"]["Hungary"], "--json")
    assert outcome.code == 5
    assert len(outcome.problems) == 1


def test_unknown_site_names_the_known_ones(call: Call, heart: str) -> None:
    call("run", heart, *SHORT, "--json")
    outcome = call("ledger", "show", "--site", "Bern", "--json")
    assert outcome.code == 5
    assert "Cleveland" in outcome.problems[0]["got"]
    assert not Path(".consilia/sites/Bern.sqlite").exists()


def test_report_anew(call: Call, heart: str) -> None:
    call("run", heart, *SHORT, "--out", "mine", "--json")
    page = Path("mine/report.html")
    before = page.read_bytes()
    page.unlink()
    assert call("report", "mine", "--json").document == {"report": "mine/report.html"}
    assert page.read_bytes() == before
    assert call("report", "nowhere", "--json").code == 5
    Path("empty").mkdir()
    assert call("report", "empty", "--json").code == 5


def test_a_run_that_is_still_going_has_a_report_but_no_export(
    call: Call, heart: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop_after(rounds: int) -> Callable[..., Any]:
        def train(plan: Any, out: Path, on_round: Callable[..., None], **engine: Any) -> None:
            def watched(record: dict[str, Any]) -> None:
                on_round(record)
                if record["round"] == rounds:
                    raise KeyboardInterrupt

            real(plan, out=out, on_round=watched, **engine)

        return train

    real = api.run
    monkeypatch.setattr(api, "run", stop_after(2))
    stopped = call("run", heart, *SHORT, "--out", "mine")
    assert stopped.code == 130
    assert call("report", "mine").code == 0
    page = Path("mine/report.html").read_text(encoding="utf-8")
    assert "running" in page
    assert "2 of 3" in page
    assert call("export", "mine", "--json").code == 5
    done = call("run", "--resume", "mine", "--json")
    assert done.code == 0
    assert done.document["rounds"] == 3
    assert "round 3 of 3" in done.err


def test_export_of_weights_and_card(call: Call, heart: str) -> None:
    call("run", heart, *SHORT, "--out", "mine", "--json")
    found = call("export", "mine", "--out", "given", "--json").document
    assert found == {"model": "given/model.safetensors", "card": "given/MODEL_CARD.md", "format": "safetensors"}
    weights = load_file(found["model"])
    vector = load_file("mine/model.safetensors")["vector"]
    assert not any(name.startswith("parameter.") for name in weights)
    assert sum(tensor.size for tensor in weights.values()) == vector.size
    assert np.isclose(sum(float(tensor.sum()) for tensor in weights.values()), float(vector.sum()), atol=1e-4)
    card = Path(found["card"]).read_text(encoding="utf-8")
    assert "differentially private for one record" in card
    assert "### Not covered" in card


def test_onnx_says_what_is_missing(call: Call, heart: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call("run", heart, *SHORT, "--out", "mine", "--json")
    monkeypatch.setattr("consilia.cli.onnx.find_spec", lambda name: None)
    outcome = call("export", "mine", "--format", "onnx", "--json")
    assert outcome.code == 2
    assert "consilia[onnx]" in outcome.problems[0]["hint"]


def test_onnx_scores_as_the_model_does(call: Call, heart: str) -> None:
    pytest.importorskip("onnxscript", reason="the extra consilia[onnx] is not installed")
    onnx = pytest.importorskip("onnx.reference", reason="the extra consilia[onnx] is not installed")
    call("run", heart, *SHORT, "--out", "mine", "--json")
    found = call("export", "mine", "--format", "onnx", "--json").document
    weights = {tensor.ndim: tensor for name, tensor in load_file("mine/model.safetensors").items() if name != "vector"}
    rows = np.random.default_rng(0).normal(size=(5, weights[2].shape[1])).astype(np.float32)
    (scores,) = onnx.ReferenceEvaluator(found["model"]).run(None, {"features": rows})
    assert np.allclose(scores, rows @ weights[2].T + weights[1], atol=1e-5)


def test_a_damaged_model_is_no_traceback(call: Call, heart: str) -> None:
    call("run", heart, *SHORT, "--out", "mine", "--json")
    Path("mine/model.safetensors").write_bytes(b"\xff" * 40)
    assert call("export", "mine", "--json").code == 5


def test_open_run_claims_nothing(call: Call, heart: str) -> None:
    plan = heart.replace("heart.toml", "heart-open.toml")
    outcome = call("run", plan, "--set", "training.rounds=2", "--out", "mine")
    assert outcome.code == 0
    assert "no epsilon: the plan asks for no differential privacy" in outcome.out
    assert json.loads(call("run", "--resume", "mine", "--json").out)["epsilon"] is None
