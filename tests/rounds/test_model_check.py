"""A site refuses a trapped model before it charges or computes anything; honest runs of all kinds pass, and not by far."""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.rounds.bench import FEDAVG, FEDSGD, RECORD, Bench, heart
from tests.rounds.traps import imprint, trap_weights
from torch import nn

from consilia.core.canonical import digest_bytes
from consilia.core.errors import ProtocolError
from consilia.core.update import ProtocolMessage, Release, Vector
from consilia.core.wire import decode, encode, pack_vector
from consilia.learning.architecture import hidden_layers
from consilia.learning.flat import FlatModel
from consilia.learning.models import build
from consilia.plan.schema import Plan
from consilia.rounds.local_step import Reach
from consilia.rounds.looks import Looks
from consilia.rounds.model_check import TRIPWIRE, Expected, KeptInStore, ModelCheck
from consilia.rounds.server_step import Step
from consilia.store.ledger_store import SiteStore

BenchMaker = Callable[..., Bench]
SITE = "Hungary"
MLP = {"name": "mlp", "hidden": [32]}
POISSON = 'algorithm = "fedavg"\nbatch = "poisson"\nsampling_rate = 0.2\nlocal_steps = 3\nlearning_rate = 0.2'
LOOSE = 'delta = 1e-3\ndelta_reason = "a test"\nclip_norm = 1.0'
AT_SITE = f'unit = "site"\nnoise = "site"\nnoise_multiplier = 0.5\n{LOOSE}'
AT_SERVER = f'unit = "site"\nnoise = "server"\nnoise_multiplier = 0.5\n{LOOSE}'
MASKS = '[secure_sum]\nmode = "masks"\ncolluders = 1'
IN_SHARES = f'unit = "record"\nnoise = "distributed"\nnoise_multiplier = 5.0\n{LOOSE}\n{MASKS}'


def mlp(plan: Plan) -> Plan:
    return plan.model_copy(update={"model": plan.model.model_copy(update=MLP)})


def ask(one: Bench, number: int, model: Vector, *, kind: str = "train", counted: int = 0) -> Release | ProtocolMessage:
    body = {"plan": one.prepared.run_plan.digest, "run": "bench", "counted": counted}
    task = ProtocolMessage(kind, SITE, number, body, pack_vector(model))  # type: ignore[arg-type]
    return decode(one.simulation.sites[SITE].handle(encode(task)), who="test")


def charged(one: Bench) -> int:
    store = one.simulation.sites[SITE]._store
    assert store is not None
    return sum(count for _, count in store.charged("bench"))


def refused(answer: Release | ProtocolMessage) -> bool:
    return (
        isinstance(answer, ProtocolMessage) and answer.kind == "refused" and answer.body == {"error": "ProtocolError"}
    )


def traps(one: Bench) -> dict[str, Vector]:
    model, (layer,) = one.prepared.initial, hidden_layers(one.prepared.model.module, one.prepared.model.segments)
    head = layer.bias + layer.rows
    return {
        "imprint": imprint(model, layer), "half an imprint": imprint(model, layer, share=0.5),
        "trap weights": trap_weights(model, layer), "a scaled head": np.concatenate([model[:head], 100 * model[head:]]),
       
        "another seed": np.random.default_rng(1).permutation(model), "one weight": model + 1e-2 * (np.arange(model.size) == 3),
    }  # fmt: skip


def test_the_first_model_is_the_one_that_the_seed_gives_here(bench: BenchMaker) -> None:
    one = bench(mlp(heart(reproducible=False)))
    for name, model in traps(one).items():
        assert refused(ask(one, 1, model.astype(np.float32))), name
    assert charged(one) == 0
    assert isinstance(ask(one, 1, one.prepared.initial), Release)
    assert charged(one) == 1


def test_a_model_replaced_in_mid_run_costs_the_sites_a_turn_and_no_charge(bench: BenchMaker) -> None:
    one = bench(
        mlp(
            heart(
                rounds=4,
                training='algorithm = "fedsgd"\nbatch = "full"\nserver_learning_rate = 0.05',
                reproducible=False,
            )
        )
    )
    honest: list[Vector] = []

    def replaced(record: dict[str, object]) -> None:
        state = one.coordinator.state
        if record["round"] == 2:
            honest.append(state.model)
            state.model = traps(one)["imprint"]
        elif record["round"] == 3:
            assert record["status"] == "skipped"
            assert set(dict(record["dropped"]).values()) == {"refused: ProtocolError"}  # type: ignore[call-overload]
            assert charged(one) == 2
            state.model = honest[0]

    one.coordinator.train(replaced)
    records = one.journal.records()
    assert [record["status"] for record in records] == ["counted", "counted", "skipped", "counted"]
    assert charged(one) == 3  # no charge for the trap


def test_metrics_of_a_trapped_model_are_refused_too(bench: BenchMaker) -> None:
    one = bench(mlp(heart(reproducible=False)))
    assert isinstance(ask(one, 1, one.prepared.initial), Release)
    assert refused(ask(one, 1, traps(one)["imprint"], kind="evaluate"))
    assert refused(ask(one, 1, one.prepared.initial + 10, kind="evaluate"))
    assert refused(ask(one, 5, one.prepared.initial + 100, kind="evaluate"))  # the run's result, after the last round


# What a run is, and how many times its largest step the bound may be. It is met where noise is drawn once for all; where each
# site adds its own, the bound has to allow for the smallest site answering alone, whose noise is largest.
MOMENTUM = POISSON + '\nmomentum = 0.5\nweight_decay = 0.01\nserver_optimizer = "momentum"\nserver_momentum = 0.5'
HONEST: dict[str, tuple[dict[str, object], float]] = {
    "record, at the site": ({"training": FEDSGD}, 15),
    "record, local steps": ({"training": POISSON}, 17),
    "record, momentum and decay": ({"training": MOMENTUM}, 40),
    "record, adam at the site": ({"training": POISSON + '\noptimizer = "adam"\nproximal_mu = 0.1'}, 30),
    "record, dp-adam at the site": ({"training": POISSON + '\noptimizer = "dp-adam"'}, 45),
    "record, adam at the coordinator": ({"training": FEDSGD + '\nserver_optimizer = "adam"'}, 5),
    "record, yogi at the coordinator": ({"training": FEDSGD + '\nserver_optimizer = "yogi"'}, 20),
    "record, adagrad at the coordinator": ({"training": FEDSGD + '\nserver_optimizer = "adagrad"'}, 1.5),
    "record, dp-adam at the coordinator": ({"training": FEDSGD + '\nserver_optimizer = "dp-adam"'}, 95),
    "record, in shares": ({"training": FEDSGD, "privacy": IN_SHARES, "metrics": "hidden"}, 6),
    "record, few coordinates": ({"training": FEDSGD, "evaluation": "[messages]\nrandom_k = 0.25"}, 30),
    "record, few bits": ({"training": FEDSGD, "evaluation": "[messages]\nquantize_bits = 8"}, 18),
    "site, at the site": ({"training": FEDAVG, "privacy": AT_SITE}, 3.5),
    "site, at the coordinator": ({"training": FEDAVG, "privacy": AT_SERVER}, 2.5),
    "site, scaffold": (
        {"training": FEDAVG + "\nscaffold = true", "privacy": AT_SERVER + "\ncontrol_clip_norm = 1.0"}, 2.5),
    "schedule": ({"training": POISSON + '\nschedule = "cosine"\nwarmup_rounds = 1'}, 18),
    "client sampling": ({"training": FEDSGD, "aggregation": 'selection = "count"\ncount = 2'}, 6),
}  # fmt: skip


@pytest.mark.parametrize("kind", HONEST)
def test_honest_steps_stay_within_their_bound_which_is_not_far(kind: str, bench: BenchMaker) -> None:
    changes, most = HONEST[kind]
    one = bench(mlp(heart(rounds=6, **{"reproducible": False, **changes})))  # type: ignore[arg-type]
    (step,) = one.prepared.steps
    assert step.reach is not None
    models, lengths = [one.prepared.initial], []

    def seen(_record: object) -> None:
        models.append(one.coordinator.state.model.copy())
        lengths.append(float(np.linalg.norm((models[-1] - models[-2]).astype(np.float64))))

    if one.prepared.run_plan.plan.training.scaffold:
        one.coordinator.state.control = np.zeros_like(one.prepared.initial)
    one.coordinator.train(seen)
    assert all(record["status"] == "counted" and not record["dropped"] for record in one.journal.records())
    bounds = [step.reach.fixed + step.reach.slope * float(np.linalg.norm(model)) for model in models[:-1]]
    assert all(length <= bound for length, bound in zip(lengths, bounds, strict=True))
    assert max(bounds) <= most * max(lengths), max(bounds) / max(lengths)


def test_a_plan_that_clips_nothing_bounds_no_step_but_for_an_optimizer_that_does(bench: BenchMaker) -> None:
    open_plan = heart(training=FEDAVG, privacy='unit = "none"')
    assert bench(mlp(open_plan)).prepared.steps[0] == Step(None, 1.0)
    adaptive = heart(privacy=RECORD + '\nclipping = "adaptive"', training=POISSON, reproducible=False)
    assert bench(mlp(adaptive), run="second").prepared.steps[0].reach is None
    adam = heart(training=FEDAVG + '\nserver_optimizer = "adam"', privacy='unit = "none"')
    assert bench(mlp(adam), run="third").prepared.steps[0].reach is not None


DIM = 40


def check_of(step: Step, *, rounds: int = 10, work: float = 1.0, kept: KeptInStore | None = None) -> ModelCheck:
    initial = np.linspace(-1, 1, DIM, dtype=np.float32)
    return ModelCheck("A", Looks(initial, ()), Expected((step,), lambda _number: 0, rounds, work), kept)


def at(distance: float) -> Vector:
    found = np.linspace(-1, 1, DIM, dtype=np.float32)
    found[7] += distance
    return found


def passes(check: ModelCheck, kind: str, number: int, model: Vector) -> bool:
    try:
        check.require(ProtocolMessage(kind, "A", number), model, digest_bytes(pack_vector(model)))
    except ProtocolError:
        return False
    return True


def test_over_rounds_that_a_site_missed_the_steps_add_up_and_no_more() -> None:
    check = check_of(Step(Reach(1.0), 1.0))
    assert not passes(check, "train", 4, at(3.01))
    assert passes(check, "train", 4, at(2.99))
    assert not passes(check, "evaluate", 4, at(4.01))
    assert passes(check, "evaluate", 4, at(3.98))
    assert not passes(check, "train", 5, at(3.98 + 2.01))  # the model of one number may differ by a step either way
    assert passes(check, "train", 5, at(3.98))
    assert passes(check, "train", 6, at(4.97))
    # Asked again for a round before: no further back than steps lead.
    assert passes(check, "train", 4, at(3.0))
    assert not passes(check, "train", 4, at(2.9))
    assert passes(check, "train", 7, at(5.96)), "an earlier model takes nothing back"
    assert not passes(check, "train", 1, at(0.1)), "the first model has been the same all the time"
    assert passes(check, "train", 1, at(0.0))


def test_the_result_may_be_any_model_of_the_run_or_a_mean_of_them() -> None:
    check = check_of(Step(Reach(1.0), 1.0), rounds=10)
    assert passes(check, "train", 4, at(3.0))
    for distance, fits in ((0.0, True), (9.9, True), (-3.9, True), (10.1, False), (-4.1, False)):
        assert passes(check, "evaluate", 11, at(distance)) is fits
    assert passes(check, "train", 5, at(4.0)), "the result takes nothing back"


def test_a_stop_loss_may_take_rounds_back() -> None:
    expected = Expected((Step(Reach(1.0), 1.0),), lambda _number: 0, 10, 1.0, back=2)
    check = ModelCheck("A", Looks(at(0.0), ()), expected, None)
    assert passes(check, "evaluate", 4, at(4.0))
    assert not passes(check, "train", 5, at(-0.1))
    assert passes(check, "train", 5, at(2.0))  # what the last good one was two rounds ago
    assert passes(check, "train", 6, at(1.0))
    assert not passes(check, "train", 7, at(-3.1))


def test_weight_decay_adds_what_the_model_is_long() -> None:
    check = check_of(Step(Reach(0.0, 0.5), 1.0))
    long = float(np.linalg.norm(at(0)))
    assert not passes(check, "train", 2, at(0.51 * long))
    assert passes(check, "train", 2, at(0.49 * long))
    assert not passes(check, "train", 2, at(-1e30))


def test_without_a_bound_a_sites_own_updates_are_a_tripwire() -> None:
    check = check_of(Step(None, 2.0), work=3.0)
    assert not passes(check, "train", 1, at(1.0))
    assert passes(check, "train", 2, at(1e6)), "nothing is known yet of what steps are like"
    check = check_of(Step(None, 2.0), work=3.0)
    check.trained(at(0.5) - at(0.0))
    most = TRIPWIRE * 2.0 * 3.0 * 0.5
    assert not passes(check, "train", 2, at(1.01 * most))
    assert passes(check, "train", 2, at(0.99 * most))
    check.trained(at(0.1) - at(0.0))
    assert not passes(check, "train", 3, at(-1.5 * most))


def test_what_was_seen_survives_a_restart(tmp_path) -> None:  # type: ignore[no-untyped-def]
    def opened(store: SiteStore) -> ModelCheck:
        return check_of(Step(Reach(1.0), 1.0), kept=KeptInStore(store.sessions, "run"))

    with SiteStore.open(tmp_path / "a.sqlite", "A") as store:
        assert passes(opened(store), "train", 4, at(3.0))
    with SiteStore.open(tmp_path / "a.sqlite", "A") as store:
        # Within four steps of the beginning, but not within one of the model that was accepted.
        assert not passes(opened(store), "train", 5, at(-3.0))
        assert passes(opened(store), "train", 5, at(4.0))
        assert not passes(opened(store), "train", 6, at(2.9))
        opened(store).close()
        assert passes(opened(store), "train", 6, at(2.9)), "a run that ended leaves no model behind"


def test_own_updates_survive_a_restart(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with SiteStore.open(tmp_path / "a.sqlite", "A") as store:
        first = check_of(Step(None, 1.0), kept=KeptInStore(store.sessions, "run"))
        first.trained(at(1.0) - at(0.0))
        assert passes(first, "train", 2, at(5.0))
        again = check_of(Step(None, 1.0), kept=KeptInStore(store.sessions, "run"))
        assert not passes(again, "train", 3, at(5.0 + 1.1 * TRIPWIRE))
        assert passes(again, "train", 3, at(5.0 + 0.9 * TRIPWIRE))


def test_simulated_sites_look_at_a_model_once() -> None:
    looks = Looks(at(0.0), ())
    expected = Expected((Step(Reach(1.0), 1.0),), lambda _number: 0, 10, 1.0)
    sites = [ModelCheck(name, looks, expected, None) for name in "ABC"]
    for site in sites:
        site.require(replace(ProtocolMessage("train", "A", 2)), at(0.5), digest_bytes(pack_vector(at(0.5))))
    held = {id(site._last) for site in sites}
    assert len(held) == 1


def test_a_model_that_overflows_is_far_away() -> None:
    check = check_of(Step(Reach(1.0), 1.0))
    for size in (1e20, 3e38, -3e38):
        assert not passes(check, "train", 2, np.full(DIM, size, np.float32))


def test_a_look_costs_a_few_local_steps() -> None:
    """Two steps on batches of 32 rows when it was written; a turn has a hundred and more of them."""
    module = build("mlp", input_shape=(784,), classes=10, hidden=(1024, 200), seed=1)
    model = FlatModel(module)
    assert model.dim > 1_000_000
    first = model.get()
    expected = Expected((Step(Reach(1e3), 1.0),), lambda _number: 0, 100, 1.0)
    check = ModelCheck("A", Looks(first, hidden_layers(module, model.segments)), expected, None)
    features, labels = torch.rand(32, 784), torch.zeros(32, dtype=torch.int64)
    looks, steps = [], []
    for number in range(2, 8):
        moved = (first + 1e-3 * np.random.default_rng(number).standard_normal(model.dim)).astype(np.float32)
        task, digest = ProtocolMessage("train", "A", number), digest_bytes(pack_vector(moved))
        begun = time.process_time()
        check.require(task, moved, digest)
        looks.append(time.process_time() - begun)
        begun = time.process_time()
        nn.functional.cross_entropy(module(features), labels).backward()  # type: ignore[no-untyped-call]
        model.trainable.add_(model.grad, alpha=-0.1)
        steps.append(time.process_time() - begun)
    assert min(looks) < 10 * min(steps), min(looks) / min(steps)
