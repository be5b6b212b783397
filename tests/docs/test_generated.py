"""Pages that a script writes are those that the script would write today, and figures in prose those of a committed result."""

import json
import statistics
from pathlib import Path
from types import ModuleType

import pytest
from docs.make import cli_reference, plan_reference, policy_reference, secure_sum_costs

import consilia
from consilia.core import errors
from consilia.rounds.records import RoundRecord

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"


@pytest.mark.parametrize(
    "script",
    [cli_reference, plan_reference, policy_reference, secure_sum_costs],
    ids=["cli", "plan", "policy", "costs"],
)
def test_page_is_up_to_date(script: ModuleType) -> None:
    assert script.PAGE.read_text(encoding="utf-8") == script.page(), f"run: python {script.__file__}"


def test_every_field_of_a_record_is_described() -> None:
    page = (REFERENCE / "records.md").read_text(encoding="utf-8")
    assert [name for name in RoundRecord(1).to_json() if f"`{name}`" not in page] == []


def test_every_field_of_a_result_is_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSILIA_HOME", str(tmp_path / "home"))
    plan = consilia.load(ROOT / "examples" / "plans" / "heart-open.toml", set=["training.rounds=2"])
    result = consilia.run(plan, out=tmp_path / "run").summary
    page = (REFERENCE / "records.md").read_text(encoding="utf-8").split("## Result")[1]
    fields = {*result, *result["per_site"]["Hungary"], *result["epsilon_against"]}
    assert [name for name in sorted(fields) if f"`{name}`" not in page] == []


def test_every_error_and_exit_code_is_described() -> None:
    page = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ConsiliaError)
    ]
    assert [kind.__name__ for kind in kinds if f"| {kind.exit_code} | `{kind.__name__}`" not in page] == []


def test_the_means_in_the_readme_are_those_of_the_study() -> None:
    study = json.loads((ROOT / "benchmarks" / "results" / "heart.json").read_text(encoding="utf-8"))
    runs = {case["name"]: [run["accuracy"] for run in case["runs"]] for case in study["cases"]}
    mean = {name: f"{100 * statistics.mean(found):.1f} %" for name, found in runs.items()}
    told = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert (
        f"{mean['epsilon 1']} at epsilon 1, {mean['epsilon 3']} at epsilon 3 and {mean['none']} without noise" in told
    )
    assert len(runs["epsilon 1"]) == 60
