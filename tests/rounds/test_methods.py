"""What wins accuracy, end to end: phases, patients, adaptive clipping, views, averages, schedules; on real runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from tests.rounds.bench import FEDSGD, RECORD, Bench, heart

import consilia
from consilia.core.errors import PlanError
from consilia.dp.event import Event
from consilia.plan.load import from_text
from consilia.plan.schema import Plan
from consilia.rounds.rates import coordinator_factor, site_factor
from consilia.store.ledger_store import SiteStore

POISSON = FEDSGD.replace('batch = "full"', 'batch = "poisson"\nsampling_rate = 0.3')
LOCAL = (
    'algorithm = "fedavg"\nbatch = "poisson"\nsampling_rate = 0.3\nlocal_steps = 4\nlearning_rate = 0.2\n'
    'optimizer = "{optimizer}"'
)
MILD = RECORD.replace("noise_multiplier = 5.0", "noise_multiplier = 1.0")
QUIET = RECORD.replace("noise_multiplier = 5.0", "noise_multiplier = 0.01")


def with_phases(plan: Plan, text: str) -> Plan:
    values = plan.model_dump(mode="json")
    values["training"].pop("rounds")
    return Plan.model_validate(
        {**values, "phases": from_text(f'[data]\nsource = "heart"\n{text}').model_dump()["phases"]}
    )


def test_each_phase_books_its_own_mechanism(tmp_path: Path) -> None:
    plan = with_phases(
        heart(training=POISSON),
        "[[phases]]\nrounds = 2\nsampling_rate = 0.1\n[[phases]]\nrounds = 3\nnoise_scale = 2.0\nclip_norm = 0.5\n",
    )
    bench = Bench(plan, tmp_path)
    try:
        bench.coordinator.train()
        assert bench.coordinator.state.charges["Hungary"] == [2, 3]
        spent = bench.coordinator._spending.epsilon(bench.coordinator.state.charges, 0)
        assert spent is None  # the reproducible mode claims none
        with SiteStore.open(tmp_path / "sites" / "Hungary.sqlite", "Hungary") as store:
            booked = {
                (e.noise_multiplier, e.sampling_rate): count
                for e, count in store.charged("bench")
                if isinstance(e, Event)
            }
        assert booked == {(5.0, 0.1): 2, (10.0, 0.3): 3}
    finally:
        bench.close()


def test_a_site_that_comes_back_remembers_what_each_phase_was_charged(tmp_path: Path) -> None:
    plan = with_phases(heart(training=POISSON), "[[phases]]\nrounds = 2\n[[phases]]\nrounds = 3\nclip_norm = 0.5\n")
    bench = Bench(plan, tmp_path)
    try:
        bench.coordinator._round(1)
        bench.coordinator._round(2)
        bench.coordinator._round(3)
        site = bench.simulation.sites["Hungary"]
        assert site._account.charges == [2, 1]
        site.open()  # one mechanism in both phases (C does not show in it): they fill up in their order
        assert site._account.charges == [2, 1]
    finally:
        bench.close()


@pytest.mark.parametrize("part", ["head", "backbone"])
def test_what_a_phase_freezes_neither_moves_nor_meets_noise(part: str, tmp_path: Path) -> None:
    text = f'[[phases]]\nrounds = 3\ntrain = "{part}"\n[[phases]]\nrounds = 1\n'
    plan = with_phases(heart(training=f'{POISSON}\nserver_optimizer = "momentum"'), text)
    plan = plan.model_copy(update={"model": plan.model.model_copy(update={"name": "mlp", "hidden": [4]})})
    bench = Bench(plan, tmp_path)
    try:
        before = bench.prepared.initial
        for number in (1, 2, 3):
            bench.coordinator._round(number)
        moved = bench.coordinator.state.model != before
        head = np.zeros(len(before), bool)
        head[bench.prepared.model.part("head")] = True
        assert moved[head if part == "head" else ~head].all()
        assert not moved[~head if part == "head" else head].any()
        middle = bench.coordinator.state.model.copy()
        bench.coordinator._round(4)
        assert (bench.coordinator.state.model != middle).all()
    finally:
        bench.close()


def test_momentum_of_an_earlier_phase_moves_nothing_later(tmp_path: Path) -> None:
    # Two phases whose second has a rate near zero: velocity that carried over would go on moving the frozen head.
    text = '[[phases]]\nrounds = 2\n[[phases]]\nrounds = 1\ntrain = "backbone"\n'
    plan = with_phases(heart(training=f'{POISSON}\nserver_optimizer = "momentum"'), text)
    plan = plan.model_copy(update={"model": plan.model.model_copy(update={"name": "mlp", "hidden": [4]})})
    bench = Bench(plan, tmp_path)
    try:
        bench.coordinator._round(1)
        bench.coordinator._round(2)
        before = bench.coordinator.state.model.copy()
        bench.coordinator._round(3)
        head = bench.prepared.model.part("head")
        assert np.array_equal(bench.coordinator.state.model[head], before[head])
    finally:
        bench.close()


def test_a_phase_without_noise_releases_the_clipped_sum(tmp_path: Path) -> None:
    noisy = with_phases(heart(training=FEDSGD), "[[phases]]\nrounds = 1\nnoise = false\n[[phases]]\nrounds = 1\n")
    bench = Bench(noisy, tmp_path)
    try:
        bench.coordinator._round(1)
        small = float(bench.coordinator.state.model @ bench.coordinator.state.model) ** 0.5
        assert (
            small < 1.0
        )  # a mean of gradients of norm at most 1 times .1; the noise would be about 5 / 199 x sqrt(28)
        with SiteStore.open(tmp_path / "sites" / "Hungary.sqlite", "Hungary") as store:
            ((event, _),) = store.charged("bench")
            assert isinstance(event, Event)
            assert event.noise_multiplier == 0.0
    finally:
        bench.close()


@pytest.mark.parametrize("start", [0.01, 100.0])
def test_adaptive_clipping_finds_the_quantile_and_keeps_it_between_rounds(start: float, tmp_path: Path) -> None:
    privacy = RECORD.replace("clip_norm = 1.0", f'clip_norm = {start}\nclipping = "adaptive"\nclip_learning_rate = 1.0')
    privacy = privacy.replace("noise_multiplier = 5.0", "noise_multiplier = 0.5")
    bench = Bench(heart(rounds=30, training=FEDSGD, privacy=privacy), tmp_path)
    try:
        bench.coordinator.train()
        with SiteStore.open(tmp_path / "sites" / "Hungary.sqlite", "Hungary") as store:
            raw = store.local_state("bench", 30)
        assert raw is not None
        found = float(safetensors.numpy.load(raw)["clipping.bound"])
        assert 0.2 < found < 3.0  # gradients of a logistic model on rows in [-1, 1] have norms of about 1
    finally:
        bench.close()


@pytest.mark.parametrize("optimizer", ["sgd", "dp-adam"])
def test_local_optimizers_learn_under_noise(optimizer: str, tmp_path: Path) -> None:
    plan = heart(rounds=6, training=LOCAL.format(optimizer=optimizer).replace("0.2", "0.1"), privacy=MILD)
    assert consilia.run(plan, out=tmp_path / "run").summary["accuracy"] > 0.7


@pytest.mark.parametrize("server", ["adam", "dp-adam"])
def test_server_optimizers_learn_under_noise(server: str, tmp_path: Path) -> None:
    training = f'{FEDSGD}\nserver_optimizer = "{server}"'
    plan = heart(rounds=20, training=training, privacy=QUIET)
    assert consilia.run(plan, out=tmp_path / "run").summary["accuracy"] > 0.7


def test_the_moving_average_is_the_result(tmp_path: Path) -> None:
    plain = consilia.run(heart(rounds=5), out=tmp_path / "last")
    kept = consilia.run(heart(rounds=5, training=f'{FEDSGD}\nkeep = "ema"\nema_decay = 0.5'), out=tmp_path / "ema")
    assert not np.allclose(plain.model, kept.model)
    again = consilia.run(heart(rounds=5, training=f'{FEDSGD}\nkeep = "ema"\nema_decay = 0.5'), out=tmp_path / "again")
    assert np.array_equal(kept.model, again.model)


def test_the_schedule_moves_the_rate_that_moves_the_model() -> None:
    plan = heart(rounds=10, training=f'{FEDSGD}\nschedule = "cosine"\nwarmup_rounds = 2')
    factors = [coordinator_factor(plan.training, number, 10) for number in range(1, 11)]
    assert factors[0] < factors[1] < factors[2] == 1.0 > factors[5] > factors[9] > 0
    assert site_factor(plan.training, 1, 10) == 1.0
    local = heart(rounds=10, training=LOCAL.format(optimizer="sgd") + '\nschedule = "cosine"')
    assert site_factor(local.training, 10, 10) < 0.1
    assert coordinator_factor(local.training, 10, 10) == 1.0


def test_views_of_rows_that_are_no_images_are_refused() -> None:
    with pytest.raises(PlanError, match="images"):
        consilia.check(heart(training=f'{FEDSGD}\naugment = "shift"\nviews = 4'))


CSV = """
[run]
reproducible = {reproducible}
[data]
source = "csv"
path = "{path}"
label = "sick"
classes = ["no", "yes"]
patient_column = "patient"
split = "hash"
test_fraction = 0.2
[data.numeric]
x = [-3, 3]
[sites]
partition = "iid"
count = 2
counts = {counts}
population = "ward"
[training]
algorithm = "fedsgd"
batch = "{batch}"
{more}
rounds = 6
server_learning_rate = 1.0
[privacy]
unit = "{unit}"
noise_multiplier = 2.0
delta = 1e-5
clip_norm = 1.0
delta_reason = "a test"
"""


def ward(path: Path, *, unit: str = "patient", batch: str = "full", more: str = "", counts: str = '"public"') -> Plan:
    if not path.exists():
        rng = np.random.default_rng(0)
        lines = ["patient,x,sick"]
        for patient in range(60):
            sick = rng.random() < 0.5
            for _ in range(rng.integers(1, 8)):
                lines.append(f"p{patient},{rng.normal(1 if sick else -1):.3f},{'yes' if sick else 'no'}")
        path.write_text("\n".join(lines))
    return from_text(CSV.format(path=path, unit=unit, batch=batch, more=more, counts=counts, reproducible="false"))


def test_patients_are_what_is_counted_drawn_and_weighed(tmp_path: Path) -> None:
    by_patient = consilia.check(ward(tmp_path / "ward.csv"))
    by_row = consilia.check(ward(tmp_path / "ward.csv", unit="record"))
    assert sum(terms.count for terms in by_patient.sites) < 60 < sum(terms.count for terms in by_row.sites)
    assert [terms.phases[0].expected_batch for terms in by_patient.sites] == [float(t.count) for t in by_patient.sites]
    assert any("A patient with rows at several sites" in warning for warning in by_patient.warnings)


@pytest.mark.parametrize(
    ("batch", "more"),
    [("full", ""), ("poisson", "sampling_rate = 0.5"), ("fixed", "batch_size = 8")],
)
def test_a_run_by_patient(batch: str, more: str, tmp_path: Path) -> None:
    result = consilia.run(ward(tmp_path / "ward.csv", batch=batch, more=more), out=tmp_path / "run")
    assert result.summary["unit"] == "patient"
    assert result.summary["epsilon"] is not None
    assert np.isfinite(result.model).all()


def test_registered_patients_bound_the_patients_held(tmp_path: Path) -> None:
    ward(tmp_path / "ward.csv")
    counts = "{ site-01 = 40, site-02 = 40 }"
    assert consilia.check(ward(tmp_path / "ward.csv", counts=counts)).sites[0].count == 40
    with pytest.raises(PlanError, match="an upper bound"):
        consilia.check(ward(tmp_path / "ward.csv", counts="{ site-01 = 4, site-02 = 40 }"))


def test_one_patient_moves_a_site_s_sum_by_at_most_the_clip_norm(tmp_path: Path) -> None:
    from consilia.core.randomness import SecretRng
    from consilia.federation.simulation import Simulation, prepare

    plan = ward(tmp_path / "ward.csv")
    quiet = plan.model_copy(update={"privacy": plan.privacy.model_copy(update={"noise_multiplier": 1e-3})})
    prepared = prepare(quiet, Path.cwd())
    with Simulation(prepared, run="r", home=tmp_path / "home") as simulation:
        rows = prepared.rows["site-01"].train
        whose = rows.patients[0]  # type: ignore[index]
        kept = np.flatnonzero(rows.patients != whose)
        assert len(rows) - len(kept) >= 1
        learner: Any = simulation.sites["site-01"]._learner
        expected = prepared.run_plan.sites[0].phases[0].expected_batch
        payload = np.ones_like(prepared.initial)  # far from a solution: every gradient is clipped
        full = learner.train(payload, None, 1, SecretRng(b"k" * 32)).vector
        others = type(learner)(
            prepared.model, rows.take(kept), prepared.rows["site-01"].test, learner._work, seed=learner._seed,
            scaffold=False, by_patient=True,
        )  # fmt: skip
        without = others.train(payload, None, 1, SecretRng(b"k" * 32)).vector
    moved = float(np.linalg.norm((full - without) * expected))
    assert 0.01 < moved <= 1.0 + 1e-5


def test_a_patient_at_two_sites_is_on_one_side_at_both(tmp_path: Path) -> None:
    from consilia.rounds.rows import site_rows

    lines = ["patient,site,x,sick"]
    lines += [f"p{p},{s},{p % 3 - 1},{'yes' if p % 2 else 'no'}" for p in range(200) for s in ("A", "B")]
    path = tmp_path / "both.csv"
    path.write_text("\n".join(lines))
    plan = ward(path)
    data = plan.data.model_copy(update={"site_column": "site"})
    sites = plan.sites.model_copy(update={"partition": "natural", "count": None})
    rows = site_rows(plan.model_copy(update={"data": data, "sites": sites}), Path.cwd())
    sides = {site: set(part.train.patients.tolist()) for site, part in rows.items()}  # type: ignore[union-attr]
    assert sides["A"] == sides["B"]
    assert 0 < len(sides["A"]) < 200


def test_a_run_can_start_from_another_run_s_model(tmp_path: Path) -> None:
    first = consilia.run(heart(rounds=2), out=tmp_path / "first")
    plan = heart(rounds=1, training=f"{FEDSGD}".replace("0.1", "1e-9"))
    start = {"initial": str(tmp_path / "first" / "model.safetensors"), "initial_source": "the test before"}
    second = consilia.run(
        plan.model_copy(update={"model": plan.model.model_copy(update=start)}), out=tmp_path / "second"
    )
    assert np.allclose(second.model, first.model, atol=1e-6)
    assert any("the test before" in warning for warning in second.summary["warnings"])
