"""One-shot stacks: rows in disjoint sets, epsilon that adds up, models that learn, chains that transfer."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from consilia.core.errors import PlanError, ProtocolError
from consilia.core.randomness import SecretRng, SharedSeed
from consilia.dp.objective import ObjectivePerturbation
from consilia.learning.stacking.importance import measured_importance
from consilia.learning.stacking.predict import high_rows, low_rows, margins
from consilia.learning.stacking.shape import StackShape, feature_blocks, one_model, sample_parts
from consilia.learning.stacking.train import draw_rows, equal_votes, train_stack
from consilia.learning.stacking.work import StackWork, shared_out

WIDTH = 6
SHAPES = {"one": one_model(WIDTH), "samples": sample_parts(WIDTH, 3), "features": feature_blocks(WIDTH, 2)}


def rng(label: str | int) -> SecretRng:
    return SecretRng.reproducible_from(SharedSeed.of(13).derive(label))


def world(count: int, seed: int = 1) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    generator = np.random.default_rng(seed)
    features = generator.uniform(-1, 1, size=(count, WIDTH))
    return features, features @ np.array([2.0, -1.0, 0.5, 1.5, 0.0, -1.0]) > 0


def accuracy(shape: StackShape, weights: NDArray[np.float64]) -> float:
    features, positive = world(2000, seed=99)
    return float(((margins(shape, weights, features, 2.0) > 0) == positive).mean())


@given(st.integers(0, 200), st.integers(0, 2**32 - 1), st.floats(0.05, 0.95), st.sampled_from(sorted(SHAPES)))
def test_every_row_is_in_one_set_and_one_only(count: int, seed: int, fraction: float, name: str) -> None:
    work = StackWork(SHAPES[name], 1.0, 200, high_fraction=fraction)
    rows = draw_rows(count, work, rng(seed))
    everything = np.concatenate([*rows.low, rows.high])
    assert sorted(everything.tolist()) == list(range(count))
    assert len(rows.low) == (3 if name == "samples" else 1)
    assert name != "one" or len(rows.high) == 0


def test_sets_have_their_share_of_rows() -> None:
    rows = draw_rows(20_000, StackWork(SHAPES["samples"], 1.0, 20_000, high_fraction=0.1), rng("shares"))
    assert len(rows.high) == pytest.approx(2000, abs=5 * math.sqrt(1800))
    assert all(len(part) == pytest.approx(6000, abs=5 * math.sqrt(4200)) for part in rows.low)


def test_a_new_row_moves_no_other() -> None:
    work = StackWork(SHAPES["samples"], 1.0, 100)
    before, after = draw_rows(50, work, rng("same")), draw_rows(51, work, rng("same"))
    for mine, other in zip([*before.low, before.high], [*after.low, after.high], strict=True):
        assert set(mine.tolist()) == set(other.tolist()) - {50}


class Spy:
    """Records what every release was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.epsilons: list[float] = []
        self.deltas: list[float] = []
        self.labels: list[NDArray[np.bool_]] = []
        self.rows: list[NDArray[np.float64]] = []
        real = ObjectivePerturbation.release

        def release(mechanism: ObjectivePerturbation, features, positive, stream, source=None):  # type: ignore[no-untyped-def]
            self.epsilons.append(mechanism.epsilon)
            self.deltas.append(mechanism.delta)
            self.rows.append(features)
            self.labels.append(positive)
            return real(mechanism, features, positive, stream, source)

        monkeypatch.setattr(ObjectivePerturbation, "release", release)


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_what_is_spent_on_any_row_is_at_most_what_is_booked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    features, positive = world(300)
    features[:, 0] = np.arange(300) / 300  # the row's number, to know it again
    shape, scale = SHAPES[name], 1.0
    work = StackWork(shape, 0.8, 300, row_bound=9.0)
    train_stack(work, features, positive, rng("spent"))
    low, high = spy.epsilons[: len(shape.blocks)], spy.epsilons[len(shape.blocks) :]
    cost = np.zeros(300)
    for index, (epsilon, rows) in enumerate(zip(low, spy.rows, strict=False)):
        if name == "features" and index:  # the other blocks lack column 0: the same rows, by their number
            assert len(rows) == len(spy.rows[0])
            rows = spy.rows[0]
        cost[np.rint(rows[:, 0] * 300 * scale).astype(int)] += epsilon
    untouched = int((cost == 0).sum())
    assert untouched == sum(len(rows) for rows in spy.rows[len(shape.blocks) :])  # all others train the high level
    assert max(cost.max(), *high, 0.0) <= work.event.epsilon
    assert cost.max() == pytest.approx(0.8)
    assert high == ([] if name == "one" else [0.8])


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=30), st.floats(0.01, 30))
def test_shares_add_up_to_at_most_the_whole(weights: list[float], epsilon: float) -> None:
    shares = shared_out(tuple(weights), 1.0)
    assert math.fsum(share * epsilon for share in shares) <= epsilon
    assert math.fsum(shares) == pytest.approx(1.0)
    assert shares[0] / shares[-1] == pytest.approx(weights[0] / weights[-1])


def test_blocks_share_delta_too(monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    work = StackWork(SHAPES["features"], 1.0, 50, importance=(3.0, 1.0), delta=1e-5)
    train_stack(work, *world(50), rng("delta"))
    assert (work.event.epsilon, work.event.delta) == (1.0, 1e-5)
    assert math.fsum(spy.deltas[:2]) <= 1e-5
    assert spy.deltas == pytest.approx([7.5e-6, 2.5e-6, 1e-5])


def test_a_public_importance_shares_epsilon_out(monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    train_stack(StackWork(SHAPES["features"], 1.0, 50, importance=(3.0, 1.0)), *world(50), rng("public"))
    assert spy.epsilons == pytest.approx([0.75, 0.25, 1.0])


def test_a_measured_importance_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    paid: list[float] = []

    def measure(*arguments, epsilon, **named):  # type: ignore[no-untyped-def]
        paid.append(epsilon)
        return measured_importance(*arguments, epsilon=epsilon, **named)

    monkeypatch.setattr("consilia.learning.stacking.train.measured_importance", measure)
    train_stack(StackWork(SHAPES["features"], 1.0, 500, measured=0.2), *world(500), rng("measured"))
    assert paid == [0.2]
    assert math.fsum([*paid, *spy.epsilons[:2]]) <= 1.0
    assert math.fsum(spy.epsilons[:2]) == pytest.approx(0.8)


def test_the_measured_importance_finds_the_block_that_tells_and_hides_one_row() -> None:
    features, _ = world(4000)
    positive = features[:, 1] > 0  # in the first block
    found = measured_importance(SHAPES["features"], features, positive, epsilon=2.0, row_bound=3.0, rng=rng("i"))
    assert found[0] > 1.5 * found[1] > 0
    drowned = measured_importance(SHAPES["features"], features, positive, epsilon=1e-5, row_bound=3.0, rng=rng("i"))
    assert all(0.5 <= part < 1.5 for part in drowned)


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_a_stack_learns_with_a_large_epsilon_and_not_with_a_tiny_one(name: str) -> None:
    features, positive = world(3000)
    work = StackWork(SHAPES[name], 20.0, 3000, ridge=1.0, row_bound=2.0)
    good = train_stack(work, features, positive, rng("learn"))
    assert good.shape == (work.shape.size,)
    assert accuracy(work.shape, good) > 0.9
    poor = [accuracy(work.shape, train_stack(work.with_(epsilon=1e-3), features, positive, rng(k))) for k in range(9)]
    assert np.mean(poor) < 0.7


def test_two_trainings_draw_different_noise_and_one_key_the_same() -> None:
    work = StackWork(SHAPES["features"], 1.0, 100)
    features, positive = world(100)
    first = train_stack(work, features, positive, rng("a"))
    assert not np.allclose(first, train_stack(work, features, positive, rng("b")))
    np.testing.assert_array_equal(first, train_stack(work, features, positive, rng("a")))


def test_a_site_without_rows_still_answers() -> None:
    work = StackWork(SHAPES["samples"], 1.0, 10)
    assert np.isfinite(train_stack(work, np.zeros((0, WIDTH)), np.zeros(0, bool), rng("empty"))).all()
    with pytest.raises(ProtocolError, match="registered 10 rows"):
        train_stack(work.with_(shape=SHAPES["one"]), *world(11), rng("more"))


def test_the_high_level_begins_at_equal_votes() -> None:
    # Without rows and noise: features' margins are added up, samples' are averaged.
    low = np.array([[0.3, 0.1], [-0.2, 0.5]])
    for shape, wanted in ((SHAPES["features"], low.sum(axis=1)), (sample_parts(WIDTH, 2), low.mean(axis=1))):
        np.testing.assert_allclose(high_rows(low) @ equal_votes(shape), wanted, rtol=0.05)


@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_rows_of_both_levels_keep_their_bounds(count: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(count, WIDTH)) * 10 ** generator.uniform(-3, 6)
    assert np.linalg.norm(low_rows(features, (0, 2, 5), 0.7), axis=1).max() <= 0.7
    assert np.linalg.norm(high_rows(features), axis=1).max() <= 1 + 1e-12


def test_transfer_carries_what_the_source_knew() -> None:
    source = train_stack(StackWork(SHAPES["features"], 30.0, 3000, 1.0, 2.0), *world(3000), rng("source"))
    features, positive = world(40, seed=7)
    work = StackWork(SHAPES["features"], 0.5, 40, 5.0, 2.0, pull=20.0)
    alone = [accuracy(work.shape, train_stack(work, features, positive, rng(k))) for k in range(8)]
    helped = [accuracy(work.shape, train_stack(work, features, positive, rng(k), source)) for k in range(8)]
    assert np.mean(helped) > np.mean(alone) + 0.1
    assert np.mean(helped) > 0.85


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: StackShape("features", 3, ((0, 1), (1, 2))), "disjoint blocks"),
        (lambda: StackShape("features", 3, ((0,), (1,))), "every column once"),
        (lambda: StackShape("features", 2, ((0, 1),)), "blocks that suit"),
        (lambda: StackShape("samples", 2, ((0, 1), (0,))), "blocks that suit"),
        (lambda: feature_blocks(2, 3), "blocks that suit"),
        (lambda: feature_blocks(2, 0), "blocks that suit"),
        (lambda: sample_parts(2, 1), "blocks that suit"),
        (lambda: one_model(0), "blocks that suit"),
        (lambda: StackWork(SHAPES["one"], 1.0, 5, importance=(1.0,)), "importance"),
        (lambda: StackWork(SHAPES["features"], 1.0, 5, importance=(1.0, 0.0)), "above 0 a block"),
        (lambda: StackWork(SHAPES["features"], 1.0, 5, importance=(1.0, 1.0), measured=0.1), "no public one"),
        (lambda: StackWork(SHAPES["samples"], 1.0, 5, measured=0.1), "parts of features"),
        (lambda: StackWork(SHAPES["features"], 1.0, 5, measured=1.0), "share in"),
        (lambda: StackWork(SHAPES["features"], 1.0, 5, high_fraction=1.0), "chance between"),
        (lambda: StackWork(SHAPES["features"], 1.0, 5, ridge=0.9), "a ridge of at least 1"),
        (lambda: StackWork(SHAPES["features"], 1.0, 5, pull=-1.0), "a pull of at least 0"),
        (lambda: StackWork(SHAPES["features"], 0.0, 5), "an epsilon above 0"),
        (lambda: StackWork(SHAPES["features"], 1.0, 5, delta=1.0), "a delta in"),
        (lambda: StackWork(SHAPES["features"], 1.0, 5, row_bound=0.0), "row_bound above 0"),
        (lambda: StackWork(SHAPES["features"], 1.0, 0), "rows of at least 1"),
    ],
)
def test_meaningless_stacks_are_refused(make: Callable[[], object], named: str) -> None:
    with pytest.raises(PlanError, match=named):
        make()
