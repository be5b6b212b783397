"""Updates made smaller, in real rounds: how many bytes cross, what comes of them, what a site keeps until its round counted."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.rounds.bench import FEDSGD, Bench, heart
from tests.rounds.secure_bench import SITES, lose

from consilia.core.update import Release
from consilia.core.wire import decode
from consilia.plan.schema import Plan
from consilia.rounds.ports import Trained

BenchMaker = Callable[..., Bench]
WIDE, DIM = '\n[model]\nname = "mlp"\nhidden = [150]', 2852
ME = "Hungary"


def plan(messages: str, *, rounds: int = 1, aggregation: str = "") -> Plan:
    return heart(rounds=rounds, training=FEDSGD + WIDE + f"\n[messages]\n{messages}", privacy='unit = "none"',
                 aggregation=aggregation, metrics="hidden")  # fmt: skip


def watch(one: Bench) -> dict[tuple[int, str], np.ndarray[Any, Any]]:
    """(round, site) -> the update that its learner came to."""
    found: dict[tuple[int, str], np.ndarray[Any, Any]] = {}
    for name, site in one.simulation.sites.items():
        learner: Any = site._learner

        def train(
            model: Any, local: Any, number: int, secret: Any, *, name: str = name, learn: Any = learner.train
        ) -> Trained:
            trained: Trained = learn(model, local, number, secret)
            found[number, name] = trained.vector.astype(np.float64)
            return trained

        learner.train = train
    return found


def sent(one: Bench) -> dict[tuple[int, str], np.ndarray[Any, Any]]:
    """(round, site) -> the update as the coordinator reads it, before it undoes anything."""
    chain = one.prepared.pipelines[0].chain
    items = [(site, decode(frame, who="test")) for site, frame in one.transport.up]
    return {
        (item.round, site): np.asarray(chain.unpack(item.payload, site), np.float64)
        for site, item in items
        if isinstance(item, Release) and item.payload
    }


@pytest.mark.parametrize(
    ("messages", "share"),
    [("quantize_bits = 8", 0.25), ("quantize_bits = 4", 0.14), ("random_k = 0.1", 0.12), ("top_k = 0.01", 0.05)],
)
def test_bytes_that_cross(messages: str, share: float, bench: BenchMaker) -> None:
    plain, small = bench(plan(""), run="plain"), bench(plan(messages), run="small")
    plain.coordinator.train()
    small.coordinator.train()
    whole, part = (sum(len(frame) for _, frame in one.transport.up) for one in (plain, small))
    assert whole > 4 * DIM * len(SITES)
    assert part <= share * whole + 300 * len(SITES)  # a frame says whose it is, of which round and plan
    record = small.journal.records()[0]
    assert (record["status"], record["bytes_up"]) == ("counted", part)


def test_quantized_updates_come_back_within_a_step_and_right_on_average(bench: BenchMaker) -> None:
    one = bench(plan("quantize_bits = 4", rounds=12))
    updates = watch(one)
    one.coordinator.train()
    off = {key: vector - updates[key] for key, vector in sent(one).items()}
    assert len(off) == 12 * len(SITES)
    for key, error in off.items():
        assert np.abs(error).max() <= np.abs(updates[key]).max() / 7  # seven steps on each side of zero
        assert np.abs(error).max() > 0
    steps = np.concatenate([error / np.abs(updates[key]).max() for key, error in off.items()])
    assert abs(steps.mean()) < 5 * steps.std() / np.sqrt(steps.size)


def test_random_coordinates_are_the_same_at_every_site_and_stretched(bench: BenchMaker) -> None:
    plain, one = bench(plan("", rounds=1), run="plain"), bench(plan("random_k = 0.1", rounds=2), run="small")
    updates = watch(one)
    start = one.coordinator.state.model.copy()
    models: list[np.ndarray[Any, Any]] = []
    one.coordinator.train(lambda _: models.append(one.coordinator.state.model.copy()))
    plain.coordinator.train()
    moved, full = (models[0] - start).astype(np.float64), plain.coordinator.state.model - start
    kept = np.flatnonzero(moved)
    assert 0 < len(kept) <= 286
    assert np.allclose(moved[kept], full[kept] * DIM / 286, rtol=1e-4, atol=1e-7)
    second = np.flatnonzero(models[1] - models[0])
    assert set(second) != set(kept)  # drawn afresh
    assert len(updates) == 2 * len(SITES)


@pytest.mark.parametrize("lost", ["its answer", "the round"])
def test_what_top_k_left_out_counts_only_if_its_round_counted(lost: str, bench: BenchMaker) -> None:
    one = bench(plan("top_k = 0.05", rounds=3, aggregation="quorum = 1.0" if lost == "the round" else ""))
    updates = watch(one)
    lose(one, (ME if lost == "its answer" else "Cleveland",), "train", 2, answered=True)
    one.coordinator.train()
    assert [r["status"] for r in one.journal.records()] == [
        "counted",
        "skipped" if lost == "the round" else "counted",
        "counted",
    ]
    went = sent(one)
    left = updates[1, ME] - went[1, ME]  # what it kept back in the round that counted
    # Whatever it did with round 2, in round 3 it makes up for round 1 only.
    made_up = updates[3, ME] + left
    chosen = np.flatnonzero(went[3, ME])
    assert len(chosen) == 143
    assert np.allclose(went[3, ME][chosen], made_up[chosen], rtol=1e-5)
    rest = np.delete(np.abs(made_up), chosen)
    assert rest.max() <= np.abs(made_up[chosen]).min() * (1 + 1e-6)
    assert not np.allclose(went[3, ME][chosen], updates[3, ME][chosen], rtol=1e-5)
