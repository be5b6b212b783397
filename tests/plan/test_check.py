import math
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from consilia.core.errors import PlanError, Problem
from consilia.core.spec import Adjacency, Segment
from consilia.dp.accountant import bound
from consilia.dp.event import Event
from consilia.plan.check import check
from consilia.plan.load import from_text
from consilia.plan.protection import protection_of
from consilia.plan.run_plan import Charge, RunPlan


def _event(charge: Charge) -> Event:
    (event,) = charge.round_events
    assert isinstance(event, Event)
    return event


Checked = Callable[..., RunPlan]
FEDAVG = ("training.algorithm=fedavg", "training.local_epochs=2")
SITE = ("privacy.unit=site",)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Delta of mu-Gaussian privacy, independent of the accountants. Source: Balle and Wang (2018), theorem 8."""
    tail = math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)
    return float(norm.cdf(-epsilon / mu + mu / 2) - tail)


def test_without_a_unit_nothing_is_claimed(checked: Checked) -> None:
    run = checked(text='[data]\nsource = "heart"\n[training]\nbatch_size = 32\nlocal_epochs = 2\n')
    assert (run.epsilon, run.delta, run.noise_multiplier, run.warnings) == (None, None, 0.0, ())
    for charge in run.charges.values():
        assert charge.round_events[0] is None
        assert set(charge.epsilon.values()) == {None}
    assert [terms.phases[0].steps for terms in run.sites] == [2 * math.ceil(n / 32) for n in (199, 172, 30, 85)]
    assert not run.spec.noised
    assert run.spec.sites == 4
    assert run.spec.dim == 28


def test_record_noise_at_the_site_holds_against_everyone(checked: Checked) -> None:
    run = checked()
    z = run.noise_multiplier
    for charge in run.charges.values():
        assert charge.round_events[0] == Event(z, 1.0, 1, Adjacency.ADD_REMOVE)
        assert set(charge.epsilon) == {"server", "server+colluding-sites", "other-sites", "world"}
        assert set(charge.epsilon.values()) == {run.epsilon}
    assert run.against == "server"
    assert run.spec.noised
    assert [terms.phases[0].expected_batch for terms in run.sites] == [199, 172, 30, 85]
    # The exact profile of 40 Gaussians: the target is met, and a fifth less noise would break it.
    assert gaussian_delta(math.sqrt(40) / z, 1.0) <= 1e-5
    assert gaussian_delta(math.sqrt(40) / (z / 1.001), 1.0) > 1e-5
    assert gaussian_delta(math.sqrt(40) / (z / 1.2), 1.0) > 3e-5


def test_only_scheduled_rounds_are_charged(checked: Checked) -> None:
    counts = dict.fromkeys("ABCDE", 6512)
    every = checked(counts=counts)
    some = checked("aggregation.selection=count", "aggregation.count=3", counts=counts)
    asked = {site: sum(site in cohort for cohort in some.schedule) for site in counts}
    assert {terms.name: terms.participations for terms in some.sites} == asked == dict.fromkeys("ABCDE", 24)
    assert some.noise_multiplier == pytest.approx(every.noise_multiplier * math.sqrt(24 / 40), rel=1e-3)
    # Client sampling is public: asking 3 of 5 is no subsampling, so nothing is amplified.
    assert {_event(charge).sampling_rate for charge in some.charges.values()} == {1.0}


def test_fixed_batches_are_charged_unamplified_once_an_epoch(checked: Checked) -> None:
    run = checked(*FEDAVG, "training.batch=fixed", "training.batch_size=16")
    assert run.adjacency is Adjacency.REPLACE_ONE
    z = run.noise_multiplier
    assert run.charges["A"].round_events[0] == Event(z / 2, 1.0, 2, Adjacency.REPLACE_ONE)
    assert gaussian_delta(2 * math.sqrt(2 * 40) / z, 1.0) <= 1e-5 < gaussian_delta(2.004 * math.sqrt(80) / z, 1.0)
    steps = checked(
        "training.algorithm=fedavg", "training.local_steps=7", "training.batch=fixed", "training.batch_size=16",
    )  # fmt: skip
    assert steps.charges["A"].round_events[0] == Event(steps.noise_multiplier / 2, 1.0, 7, Adjacency.REPLACE_ONE)


def test_a_secret_poisson_draw_amplifies_and_its_cut_batches_are_paid_for(checked: Checked) -> None:
    plan = (*FEDAVG, "training.batch=poisson", "training.sampling_rate=0.1", "training.rounds=4")
    run = checked(*plan)
    event = run.charges["A"].round_events[0]
    assert event == Event(run.noise_multiplier, 0.1, 20, Adjacency.ADD_REMOVE)
    assert run.noise_multiplier < checked(*FEDAVG, "training.rounds=4").noise_multiplier * math.sqrt(10) / 2
    cut = run.charges["A"].extra_delta
    assert 0 < cut < 1e-3 * 1e-5
    assert run.epsilon is not None
    assert bound([(event, 4)], 1e-5 - cut).epsilon == run.epsilon <= 1
    assert [terms.phases[0].expected_batch for terms in run.sites] == pytest.approx([19.9, 17.2, 3.0, 8.5])
    assert all(terms.phases[0].expected_batch < terms.phases[0].batch_cap <= terms.count for terms in run.sites)


def test_a_cap_that_cuts_too_often_is_refused(checked: Checked) -> None:
    plan = (*FEDAVG, "training.batch=poisson", "training.sampling_rate=0.1", "training.rounds=4")
    whole = checked(*plan, "training.batch_cap=1000")  # above every count: never reached, so free
    assert [terms.phases[0].batch_cap for terms in whole.sites] == [terms.count for terms in whole.sites]
    assert whole.charges["A"].extra_delta == 0
    with pytest.raises(PlanError, match=r"training.batch_cap needs a cap so rarely reached"):
        checked(*plan, "training.batch_cap=20")


@pytest.mark.parametrize("size", ["privacy.epsilon=1", "privacy.noise_multiplier=50"])
def test_a_cap_below_the_count_cuts_every_batch_of_all_rows(checked: Checked, private: str, size: str) -> None:
    text = private.replace("epsilon = 1.0\n", "")
    plan = ("training.batch=poisson", "training.sampling_rate=1.0", "training.rounds=1", size)
    assert checked(*plan, text=text).epsilon is not None  # without a cap nothing is cut
    with pytest.raises(PlanError, match=r"training.batch_cap needs a cap so rarely reached"):
        checked(*plan, "training.batch_cap=29", text=text)
    site = (*plan, "privacy.unit=site", "training.batch_cap=29")
    assert checked(*site, text=text).epsilon is not None  # the whole update is clipped, whatever a batch holds


def test_noise_at_the_server_promises_nothing_against_the_server(checked: Checked) -> None:
    run = checked("privacy.noise=server")
    assert run.against == "world"
    for charge in run.charges.values():
        assert charge.epsilon["server"] is None
        assert charge.epsilon["server+colluding-sites"] is None
        assert charge.epsilon["world"] == charge.epsilon["other-sites"] == run.epsilon
    assert not run.spec.noised
    assert run.spec.l2_bound == pytest.approx(1 / 30)
    assert any("against the server itself" in text for text in run.warnings)


@pytest.mark.parametrize("unit", ["record", "site"])
@pytest.mark.parametrize("weights", ["n", "uniform", "power", "capped"])
def test_each_site_is_charged_for_its_own_share_of_the_server_s_noise(
    checked: Checked, unit: str, weights: str
) -> None:
    changes = ["privacy.noise=server", f"privacy.unit={unit}", f"aggregation.weights={weights}"]
    run = checked(*changes, *(["aggregation.cap=100"] if weights == "capped" else []))
    pipe = protection_of(run.phases[0], run.sites, run.noise_multiplier, control_dim=0)
    std = run.noise_multiplier * pipe.sum_sensitivity
    for terms in run.sites:
        event = _event(run.charges[terms.name])
        own = terms.weight * pipe.site_bound(terms.name)
        assert event.noise_multiplier * own == pytest.approx(std, rel=1e-9)
        assert event.noise_multiplier * own <= std * (1 + 1e-12)
    multipliers = [_event(charge).noise_multiplier for charge in run.charges.values()]
    assert min(multipliers) == run.noise_multiplier
    assert max(charge.epsilon["world"] or 0 for charge in run.charges.values()) == run.epsilon


def test_a_site_s_whole_update_is_one_release_a_round(checked: Checked) -> None:
    run = checked(*SITE, *FEDAVG, "training.batch=fixed", "training.batch_size=16")
    assert run.adjacency is Adjacency.ZERO_OUT
    assert run.charges["A"].round_events[0] == Event(run.noise_multiplier, 1.0, 1, Adjacency.ZERO_OUT)
    assert run.noise_multiplier == checked(*SITE).noise_multiplier
    assert set(run.charges["A"].epsilon.values()) == {run.epsilon}
    # Poisson batches hide records, not the site: no amplification for it.
    draw = ("training.batch=poisson", "training.sampling_rate=0.1", "training.batch_cap=20")
    poisson = checked(*SITE, *FEDAVG, *draw)
    assert poisson.noise_multiplier == run.noise_multiplier
    assert poisson.charges["A"].extra_delta == 0


def test_scaffold_sends_two_clipped_parts(checked: Checked) -> None:
    run = checked(*SITE, *FEDAVG, "training.scaffold=true", "privacy.control_clip_norm=0.5")
    assert run.spec.dim == 56
    assert [part.name for part in run.spec.segments][2:] == ["control/weight", "control/bias"]
    record = checked(*FEDAVG, "training.scaffold=true")
    assert any("SCAFFOLD" in text for text in record.warnings)


def test_charged_evaluations_take_part_of_the_budget(checked: Checked) -> None:
    free = checked("evaluation.metrics=public")
    run = checked("evaluation.metrics=charged", "evaluation.noise_multiplier=20", "evaluation.every=10")
    charge = run.charges["A"]
    assert charge.evaluations == 40 // 10 + 1  # every tenth round, and the model that is kept
    assert charge.evaluation_event == Event(20)
    assert run.noise_multiplier > free.noise_multiplier
    mu = math.sqrt(40 / run.noise_multiplier**2 + 5 / 20**2)
    assert gaussian_delta(mu, 1.0) <= 1e-5 < gaussian_delta(mu * 1.002, 1.0)


def test_epsilon_follows_from_stated_noise(checked: Checked, private: str) -> None:
    text = private.replace("epsilon = 1.0", "noise_multiplier = 20.0")
    run = checked(text=text)
    assert run.epsilon is not None
    assert gaussian_delta(math.sqrt(40) / 20, run.epsilon) == pytest.approx(1e-5, rel=1e-3)
    with pytest.raises(PlanError, match=r"ledger.max_epsilon needs at least"):
        checked("ledger.max_epsilon=1", text=text)


def test_poisson_with_stated_noise_prices_cut_batches_at_the_epsilon_it_reports(checked: Checked, private: str) -> None:
    from consilia.dp.truncation import truncation_delta

    text = private.replace("epsilon = 1.0", "noise_multiplier = 1.0")
    run = checked(*FEDAVG, "training.batch=poisson", "training.sampling_rate=0.1", "training.rounds=4", text=text)
    assert run.epsilon is not None
    assert run.epsilon > 1
    for terms in run.sites:
        owed = truncation_delta(terms.count, 0.1, terms.phases[0].batch_cap, terms.phases[0].steps * 4, run.epsilon)
        assert owed <= run.charges[terms.name].extra_delta < 1e-5


def test_the_reproducible_mode_claims_no_epsilon_but_charges(checked: Checked) -> None:
    run = checked("run.reproducible=true")
    assert run.epsilon is None
    assert run.charges["A"].round_events[0] == checked().charges["A"].round_events[0]
    assert any("claims no epsilon" in text for text in run.warnings)


def test_delta_above_its_limit_needs_a_reason_and_warns(checked: Checked) -> None:
    reason = 'privacy.delta_reason="a published table"'
    run = checked("privacy.delta=1e-3", reason)
    assert any("a published table" in text for text in run.warnings)
    assert any("C (30 to train on)" in text for text in run.warnings)
    assert not any("Delta" in text for text in checked().warnings)
    # The limit is a tenth of 1 / n where that is below 1e-5.
    counts = {"A": 20_000, "B": 30_000}
    with pytest.raises(PlanError, match=r"at most 5e-06"):
        checked(counts=counts)
    assert checked("privacy.delta=5e-6", counts=counts).epsilon is not None


def test_registered_counts_are_what_everything_follows_from(checked: Checked) -> None:
    stated = "sites.counts={A=200, B=200, C=50, D=100}"
    run = checked(stated)
    assert [terms.count for terms in run.sites] == [200, 200, 50, 100]
    # The rows held change nothing that others see: a site may gain a row below its registered bound.
    assert run == checked(stated, counts={"A": 150, "B": 2, "C": 49, "D": 100})


def test_a_site_without_rows_and_a_model_without_parameters_are_refused() -> None:
    plan = from_text('[data]\nsource = "heart"\n[training]\nbatch_size = 32\n')
    own = Problem("layer bn1", "GroupNorm", "BatchNorm", "Replace it")
    with pytest.raises(PlanError) as caught:
        check(plan, counts={"A": 0, "B": 3}, input_shape=(13,), classes=1, segments=(), problems=[own])
    assert [problem.who for problem in caught.value.problems] == ["layer bn1", "site A", "the model", "the model"]


def test_the_warning_on_sampling_nobody(checked: Checked) -> None:
    run = checked("aggregation.selection=poisson", "aggregation.fraction=0.1")
    assert any("asks no site" in text for text in run.warnings)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_largest_bound_of_any_site_meets_the_target(checked: Checked, data: st.DataObject) -> None:
    draw = data.draw
    sizes = draw(st.lists(st.integers(20, 5000), min_size=2, max_size=6))
    counts = {f"site-{i}": size for i, size in enumerate(sizes)}
    noise, unit = draw(st.sampled_from(["site", "server"])), draw(st.sampled_from(["record", "site"]))
    target = draw(st.floats(0.1, 10))
    selection = draw(st.sampled_from(["all", "count", "tilted", "poisson"]))
    changes = [
        f"privacy.noise={noise}", f"privacy.unit={unit}", f"privacy.epsilon={target}",
        f"training.rounds={draw(st.integers(1, 60))}", f"run.seed={draw(st.integers(0, 1000))}",
        f"aggregation.selection={selection}", f"aggregation.weights={draw(st.sampled_from(['n', 'uniform', 'power']))}",
    ]  # fmt: skip
    if selection in ("count", "tilted"):
        changes.append(f"aggregation.count={draw(st.integers(1, len(sizes)))}")
    if selection == "poisson":
        changes.append("aggregation.fraction=0.5")
    run = checked(*changes, counts=counts)
    found = {name: charge.epsilon[run.against] for name, charge in run.charges.items()}
    for terms in run.sites:
        event, epsilon = _event(run.charges[terms.name]), found[terms.name]
        assert epsilon is not None
        assert epsilon <= target
        if terms.participations:
            mu = math.sqrt(terms.participations) / event.noise_multiplier
            assert gaussian_delta(mu, epsilon) <= 1e-5 * (1 + 1e-6)
        else:
            assert epsilon == 0
    assert run.epsilon == max(value for value in found.values() if value is not None)
    if any(terms.participations for terms in run.sites) and noise == "site":
        assert run.epsilon >= target * 0.999  # no noise is wasted


@pytest.mark.parametrize(
    "change",
    [
        "run.name=other", "run.seed=1", "data.test_fraction=0.3", "data.split=hash", "sites.counts=public",
        "sites.population=other", "model.name=mlp", "training.rounds=41", "training.server_learning_rate=0.5",
        "training.weight_decay=0.1", "privacy.epsilon=1.1", "privacy.delta=1e-6", "privacy.clip_norm=0.5",
        "privacy.noise=server", "privacy.unit=site", "privacy.against=world", "aggregation.weights=uniform",
        "aggregation.quorum=0.6", "evaluation.metrics=public", "ledger.max_epsilon=5",
        "sites.counts={A=199, B=172, C=30, D=86}",
    ],
)  # fmt: skip
def test_the_digest_changes_with_every_key_that_matters(checked: Checked, change: str) -> None:
    assert checked(change).digest != checked().digest


def test_the_digest_names_the_version(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    before = checked().digest
    monkeypatch.setattr("consilia.plan.check.VERSION", "99.0.0")
    assert checked().digest != before


def test_the_digest_names_model_counts_and_file_but_not_the_folder(checked: Checked) -> None:
    plan = from_text('[data]\nsource = "heart"\n[training]\nbatch_size = 32\n')

    def digest(
        counts: dict[str, int] | None = None, shape: tuple[int, ...] = (4,), classes: int = 2, name: str = "w",
        size: int = 3, path: str | None = None,
    ) -> str:  # fmt: skip
        changed = plan.model_copy(update={"data": plan.data.model_copy(update={"path": path, "source": "npz"})})
        changed = changed.model_copy(
            update={"sites": changed.sites.model_copy(update={"partition": "iid", "count": 2})}
        )
        run = check(
            changed, counts=counts or {"A": 5, "B": 6}, input_shape=shape, classes=classes, segments=(Segment(name, (size,)),),
        )  # fmt: skip
        return run.digest

    base = digest(path="/a/x.npz")
    assert base == digest(path="/b/c/x.npz") == digest(counts={"B": 6, "A": 5}, path="C:\\x.npz")
    others = [
        digest(path="/a/y.npz"), digest({"A": 5, "B": 7}, path="/a/x.npz"), digest(shape=(5,), path="/a/x.npz"),
        digest(classes=3, path="/a/x.npz"), digest(name="v", path="/a/x.npz"), digest(size=4, path="/a/x.npz"),
    ]  # fmt: skip
    assert len({base, *others}) == 7


def test_a_site_gets_its_own_half(checked: Checked) -> None:
    run = checked()
    half = run.site("C")
    assert (half.terms.name, half.terms.count, half.digest) == ("C", 30, run.digest)
    assert half.charge == run.charges["C"]
    assert half.population == "heart"
    assert checked("sites.population=cardio").population == "cardio"


@pytest.mark.parametrize(
    ("unit", "noise"), [("record", "site"), ("record", "server"), ("site", "site"), ("site", "server")]
)
def test_a_schedule_that_asks_nobody_publishes_nothing_and_needs_no_noise(
    checked: Checked, unit: str, noise: str
) -> None:
    sampled = ("training.rounds=1", "aggregation.selection=poisson", "aggregation.fraction=0.01")
    run = checked(*sampled, f"privacy.unit={unit}", f"privacy.noise={noise}")
    assert run.schedule == ((),)
    assert (run.noise_multiplier, run.epsilon) == (0.0, 0.0)
