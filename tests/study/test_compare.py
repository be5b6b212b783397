"""The same run under each protection: which plans are made, what is measured, what is refused."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.transport.tpm.software_tpm import require_swtpm

from consilia.core.errors import PlanError, StoreError
from consilia.plan.load import from_text
from consilia.plan.rules import broken
from consilia.plan.schema import Plan
from consilia.study import software_tpm
from consilia.study.compare import compare
from consilia.study.variants import TITLES, variants

PLAN = """
[run]
name = "four"
[data]
source = "heart"
split = "exact"
test_fraction = 0.34
[sites]
counts = "public"
[training]
algorithm = "fedsgd"
batch = "full"
rounds = 3
server_learning_rate = 0.5
[privacy]
unit = "record"
epsilon = 3.0
delta = 1e-3
delta_reason = "a test"
clip_norm = 1.0
[secure_sum]
mode = "paillier"
key_bits = 2048
"""


def plan(*overrides: str) -> Plan:
    return from_text(PLAN, overrides)


def without_tpm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software_tpm, "available", lambda: False)
    monkeypatch.delenv("CONSILIA_TPM", raising=False)


def run(
    of: Plan, out: Path, seeds: int = 1, data_folder: Path = Path(), public_rows: bool = False
) -> tuple[dict[str, Any], list[tuple[str, int]]]:
    told: list[tuple[str, int]] = []
    folder, document = compare(
        of, seeds=seeds, out=out, on_run=lambda *run: told.append(run), data_folder=data_folder, public_rows=public_rows
    )
    assert folder == out
    return {row["name"]: row for row in json.loads(json.dumps(document))["rows"]}, told


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("secure_sum.mode=masks", "secure_sum.dropouts=1", "secure_sum.colluders=1", "secure_sum.key_bits=3072"),
        ("secure_sum.mode=none", "secure_sum.key_bits=3072", "ledger.max_epsilon=9.0", "privacy.against=world",
         "privacy.noise=server"),
    ],
)  # fmt: skip
def test_each_variant_breaks_no_rule(overrides: tuple[str, ...]) -> None:
    for variant in variants(plan(*overrides)):
        made = variant.plan(7, "policy.toml" if variant.name == "attested" else None)
        assert broken(made) == []
        assert (made.run.seed, made.evaluation.metrics, made.ledger.max_epsilon) == (7, "public", None)
        assert (made.privacy.unit != "none") == (variant.name in ("dp", "secure-sum-dp"))
        assert (made.secure_sum.mode == "none") == (variant.name in ("plain", "dp"))
        assert made.secure_sum.dropouts == (
            plan(*overrides).secure_sum.dropouts if made.secure_sum.mode != "none" else 0
        )


def test_phases_keep_their_work_and_lose_what_belongs_to_noise() -> None:
    phases = "[[phases]]\nrounds = 2\nclip_norm = 0.5\nnoise_scale = 2.0\nserver_learning_rate = 0.3\n[[phases]]\nrounds = 1\n"
    of = from_text(PLAN.replace("rounds = 3\n", "") + phases)
    made = {variant.name: variant.plan(1, "p.toml" if variant.name == "attested" else None) for variant in variants(of)}
    assert [broken(each) for each in made.values()] == [[]] * len(TITLES)
    assert made["plain"].phases[0].clip_norm is None
    assert made["plain"].phases[0].server_learning_rate == made["dp"].phases[0].server_learning_rate == 0.3
    assert made["dp"].phases[0].noise_scale == 2.0


def test_every_row_is_a_real_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    without_tpm(monkeypatch)
    rows, told = run(plan(), tmp_path / "out", seeds=2)
    assert list(rows) == list(TITLES)
    assert "Install swtpm" in rows["attested"].pop("reason")
    assert "cpu" not in rows.pop("attested")
    orders = [[title for title, seed in told if seed == which] for which in (1, 2)]
    assert orders[0] != orders[1]
    assert {*orders[0]} >= {row["title"] for row in rows.values()}
    plain = rows["plain"]
    for name, row in rows.items():
        assert row["reason"] is None
        assert row["rounds"] == 3
        assert row["skipped"] == 0
        assert row["cpu"] > 0
        assert row["wall"] > 0
        assert len(row["accuracies"]) == 2
        # Integers of 20 bits and exact sums: no secure sum may cost accuracy that rounding does not explain.
        if name in ("secure-sum", "paillier", "rlwe"):
            assert row["accuracies"] == pytest.approx(plain["accuracies"], abs=0.012)
            assert row["up"] > 2 * plain["up"]
    assert {name: row["against"] for name, row in rows.items()} == {
        "plain": None, "dp": "server", "secure-sum": None, "secure-sum-dp": "server", "paillier": None, "rlwe": None,
    }  # fmt: skip
    assert rows["dp"]["epsilon"] == pytest.approx(3.0, rel=1e-3)
    assert rows["dp"]["epsilon"] <= 3
    assert rows["secure-sum-dp"]["epsilon"] <= 3
    # A key of 2048 bits is made once, and sealed to every site; the masks of a round are made in each.
    assert rows["paillier"]["setup"] > 5 * rows["paillier"]["cpu"] / 4
    assert rows["paillier"]["setup_bytes"] > 1000
    assert rows["secure-sum"]["setup_bytes"] < 100


def test_the_users_ledgers_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    without_tpm(monkeypatch)
    home = tmp_path / "home"
    monkeypatch.setenv("CONSILIA_HOME", str(home))
    run(plan(), tmp_path / "out")
    assert not home.exists()
    assert not (tmp_path / ".consilia").exists()
    charged = sorted(
        path.parts[-4] for path in (tmp_path / "out").rglob("home/sites/Cleveland.sqlite") if _charged(path)
    )
    assert charged == ["dp-1", "secure-sum-dp-1"]


def _charged(path: Path) -> bool:
    with sqlite3.connect(path) as ledger:
        found = ledger.execute("SELECT count(*) FROM entries").fetchone()[0]
    return bool(found)


def test_rows_that_may_need_protection_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    without_tpm(monkeypatch)
    lines = [f"{index % 2},{index % 7 / 7:.2f},{'abc'[index % 3]}" for index in range(60)]
    Path("rows.csv").write_text("y,x,hospital\n" + "\n".join(lines) + "\n")
    own = from_text(
        PLAN.replace('source = "heart"', 'source = "csv"\npath = "rows.csv"\nlabel = "y"\nclasses = ["0", "1"]\n'
                     'site_column = "hospital"\nnumeric = { x = [0, 1] }')
        .replace('counts = "public"', 'counts = "public"\npopulation = "ward"')
    )  # fmt: skip
    with pytest.raises(PlanError, match="rows that nobody has to protect"):
        run(own, tmp_path / "out", data_folder=tmp_path)
    assert not (tmp_path / "out").exists()
    rows, _ = run(own, tmp_path / "out", data_folder=tmp_path, public_rows=True)
    assert rows["plain"]["accuracy"] is not None


def test_what_a_mode_cannot_hold_is_its_rows_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_tpm(monkeypatch)
    three = ("aggregation.selection=count", "aggregation.count=3", "secure_sum.mode=masks", "secure_sum.key_bits=3072")
    rows, _ = run(plan(*three), tmp_path / "out")
    assert 'aggregation.selection = "all"' in rows["rlwe"]["reason"]
    assert rows["secure-sum"]["reason"] is None
    local = ("training.algorithm=fedavg", "training.local_steps=2", "training.learning_rate=0.1")
    rows, _ = run(plan(*local), tmp_path / "local")
    assert "one clipped sum a round" in rows["secure-sum-dp"]["reason"]
    assert rows["dp"]["epsilon"] is not None
    assert not (tmp_path / "local" / "runs" / "secure-sum-dp-1").exists()


def test_a_plan_without_a_unit_has_no_private_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_tpm(monkeypatch)
    head, _, rest = PLAN.partition("[privacy]")
    rows, _ = run(from_text(head + "[secure_sum]" + rest.partition("[secure_sum]")[2]), tmp_path / "out")
    assert "no privacy.unit" in rows["dp"]["reason"]
    assert "no privacy.unit" in rows["secure-sum-dp"]["reason"]
    assert rows["plain"]["epsilon"] is None


def test_a_plan_that_nothing_can_hold_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_tpm(monkeypatch)
    few = {"Cleveland": 1, "Hungary": 1, "Switzerland": 1, "VA Long Beach": 1}
    counts = ", ".join(f'"{site}" = {count}' for site, count in few.items())
    with pytest.raises(PlanError, match="a protection that the plan can hold"):
        run(from_text(PLAN.replace('counts = "public"', f"counts = {{ {counts} }}")), tmp_path / "out")


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(StoreError, match="an empty folder"):
        run(plan(), tmp_path)


def test_attested_sums_with_a_software_tpm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_swtpm()
    from consilia.study import compare as study

    monkeypatch.delenv("CONSILIA_TPM", raising=False)
    some = [variant for variant in variants(plan()) if variant.name in ("plain", "attested")]
    monkeypatch.setattr(study, "variants", lambda plan: some)
    rows, _ = run(plan(), tmp_path / "out")
    assert rows["attested"]["reason"] is None
    assert rows["attested"]["accuracy"] == pytest.approx(rows["plain"]["accuracy"], abs=0.012)
    assert "shields nothing" in rows["attested"]["sees"]
    assert rows["attested"]["setup_bytes"] > 1000  # evidence
    import os

    assert "CONSILIA_TPM" not in os.environ


def test_a_software_tpm_that_does_not_start_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from consilia.study import compare as study

    monkeypatch.setattr(software_tpm, "available", lambda: True)
    monkeypatch.setattr(software_tpm, "PROGRAM", "false")
    some = [variant for variant in variants(plan()) if variant.name in ("plain", "attested")]
    monkeypatch.setattr(study, "variants", lambda plan: some)
    rows, _ = run(plan(), tmp_path / "out")
    assert "to start within" in rows["attested"]["reason"]
    assert rows["plain"]["reason"] is None
