"""Sites trained together get what each would get alone; one site's fault stays its own; memory is bounded."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn

from consilia.core.randomness import SecretRng, SharedSeed
from consilia.learning.cohort import together
from consilia.learning.cohort.lockstep import Result, in_lock_step
from consilia.learning.cohort.task import Task, alone
from consilia.learning.cohort.together import train_together
from consilia.learning.flat import FlatModel
from consilia.learning.local import LocalResult
from consilia.learning.models import build
from consilia.learning.work import LocalWork

WIDTH, CLASSES = 5, 3
PLAIN = LocalWork(batch="fixed", batch_size=4, steps=3, learning_rate=0.3)
PRIVATE = replace(PLAIN, batch="poisson", sampling_rate=0.5, batch_cap=9, clip_norm=0.7, noise_multiplier=0.4,
                  expected_batch=3.0)  # fmt: skip


def mlp(name: str = "mlp", activation: Literal["relu", "tanh"] = "relu") -> FlatModel:
    module = build(name, input_shape=(WIDTH,), classes=CLASSES, hidden=(7, 4), activation=activation, seed=2)
    return FlatModel(module.double())  # in double precision a wrong term cannot hide behind rounding


def batches(rows: int, work: LocalWork, secret: SecretRng, seed: int) -> Callable[[], NDArray[np.int64]]:
    rng, sampling = np.random.default_rng(seed), secret.derive("sampling")

    def poisson() -> NDArray[np.int64]:
        joined = np.flatnonzero(sampling.uniform(rows) < (work.sampling_rate or 1))
        return joined[sampling.permutation(len(joined))][: work.batch_cap]

    def fixed() -> Iterator[NDArray[np.int64]]:
        while True:
            order = rng.permutation(rows)
            yield from (order[i : i + (work.batch_size or 1)] for i in range(0, max(1, rows), work.batch_size or 1))

    return poisson if work.batch == "poisson" else fixed().__next__


def task(model: FlatModel, work: LocalWork, rows: int, site: int, *, scaffold: bool = False) -> Task:
    rng = np.random.default_rng(100 + site)
    secret = SecretRng.reproducible_from(SharedSeed.of(site))
    start = 0.4 * rng.standard_normal(model.dim, dtype=np.float32)
    control = None
    if scaffold:
        c, c_i = 0.1 * rng.standard_normal((2, model.dim), dtype=np.float32)
        control = (c, c_i)
    return Task(
        start, torch.from_numpy(rng.standard_normal((rows, WIDTH))), torch.from_numpy(rng.integers(0, CLASSES, rows)), work,
        secret, SharedSeed.of(0), batches(rows, work, secret, site), control, {},
    )  # fmt: skip


def both(
    model: FlatModel, works: Sequence[LocalWork], rows: Sequence[int], change: Callable[[Task], Task] = lambda t: t,
    *, scaffold: bool = False,
) -> tuple[list[LocalResult], list[Result]]:  # fmt: skip
    """Do the same work one by one and together; streams are made anew for each."""
    one, other = (
        [
            change(task(model, w, n, site, scaffold=scaffold))
            for site, (w, n) in enumerate(zip(works, rows, strict=True))
        ]
        for _ in range(2)
    )
    return [alone(model, t) for t in one], train_together(model, other)


def assert_equal(expected: Sequence[LocalResult], found: Sequence[Result]) -> None:
    for one, other in zip(expected, found, strict=True):
        assert isinstance(other, LocalResult)
        np.testing.assert_allclose(other.delta, one.delta, rtol=2e-6, atol=2e-7)
        assert other.delta.dtype == np.float32
        assert (one.control_delta is None) == (other.control_delta is None)
        if one.control_delta is not None and other.control_delta is not None:
            np.testing.assert_allclose(other.control_delta, one.control_delta, rtol=2e-5, atol=2e-6)
        assert (one.loss is None) == (other.loss is None)
        assert one.loss is None or other.loss == pytest.approx(one.loss, rel=1e-9, nan_ok=True)
        assert other.local_state == one.local_state == {}


@settings(deadline=None, max_examples=60)
@given(
    data=st.data(), rows=st.lists(st.integers(0, 12), min_size=1, max_size=7),
    batch=st.sampled_from(["full", "fixed", "poisson"]), optimizer=st.sampled_from(["sgd", "momentum", "adam"]),
    clips=st.booleans(), name=st.sampled_from(["logistic", "mlp"]), activation=st.sampled_from(["relu", "tanh"]),
)  # fmt: skip
def test_together_equals_one_by_one(
    data: st.DataObject, rows: list[int], batch: Literal["full", "fixed", "poisson"], optimizer: str, clips: bool,
    name: str, activation: Literal["relu", "tanh"],
) -> None:  # fmt: skip
    fedavg, scaffold = data.draw(st.booleans()), data.draw(st.booleans()) and optimizer != "adam"
    decay, mu = data.draw(st.sampled_from([(0.0, 0.0), (0.2, 0.0), (0.1, 0.7)]))
    works = [
        LocalWork(
            algorithm="fedavg" if fedavg else "fedsgd", batch=batch, batch_size=data.draw(st.integers(1, 5)),
            sampling_rate=data.draw(st.sampled_from([0.1, 0.6])), batch_cap=data.draw(st.integers(1, 12)),
            steps=data.draw(st.integers(1, 5)) if fedavg else 1, learning_rate=0.01 if optimizer == "adam" else 0.3,
            optimizer="adam" if optimizer == "adam" else "sgd", momentum=0.9 if optimizer == "momentum" else 0.0,
            clip_norm=0.7 if clips else None, noise_multiplier=0.4 if clips else 0.0,
            expected_batch=data.draw(st.sampled_from([1.0, 3.5])),
            weight_decay=decay, proximal_mu=mu,
        ) for _ in rows
    ]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(together, "_alone", lambda _model, _task: pytest.fail("trained alone"))
        assert_equal(*both(mlp(name, activation), works, rows, scaffold=scaffold and fedavg))


@pytest.mark.parametrize("work", [PLAIN, PRIVATE])
def test_single_precision_differs_by_rounding(work: LocalWork) -> None:
    model = FlatModel(build("mlp", input_shape=(WIDTH,), classes=CLASSES, hidden=(7,), seed=2))

    def single(one: Task) -> Task:
        return replace(one, features=one.features.float())

    expected, found = both(model, [replace(work, steps=10)] * 6, [9, 1, 12, 0, 30, 7], single)
    for one, other in zip(expected, found, strict=True):
        assert isinstance(other, LocalResult)
        np.testing.assert_allclose(other.delta, one.delta, atol=2e-6)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
@pytest.mark.parametrize("work", [PLAIN, PRIVATE, replace(PRIVATE, batch="full")])
def test_a_spoilt_row_spoils_what_it_spoils_alone(work: LocalWork, value: float) -> None:
    def spoil(one: Task) -> Task:
        if len(one.labels) == 8:
            one.features[3] = value
        return one

    expected, found = both(mlp(), [work] * 4, [5, 8, 6, 0], spoil)
    for one, other in zip(expected, found, strict=True):
        assert isinstance(other, LocalResult)
        assert np.isfinite(one.delta).all() == np.isfinite(other.delta).all()
        if np.isfinite(one.delta).all():
            np.testing.assert_allclose(other.delta, one.delta, rtol=2e-6, atol=2e-7)
    others = [other.delta for site, other in enumerate(found) if site != 1 and isinstance(other, LocalResult)]
    assert all(np.isfinite(delta).all() for delta in others)
    if work.clip_norm is not None:
        assert all(isinstance(other, LocalResult) and np.isfinite(other.delta).all() for other in found)


def test_no_row_adds_more_than_the_clip_norm_and_noise_is_drawn() -> None:
    model = mlp()
    work = LocalWork(algorithm="fedsgd", batch="full", clip_norm=0.5, expected_batch=1.0)
    heavy = [replace(one, features=one.features * 1e6) for one in (task(model, work, 1, site) for site in range(8))]
    norms = [
        np.linalg.norm(outcome.delta) for outcome in train_together(model, heavy) if isinstance(outcome, LocalResult)
    ]
    assert 0.499 < max(norms) <= 0.5
    assert len(norms) == len(heavy)
    noisy = replace(work, noise_multiplier=3.0)
    drawn = train_together(model, [task(model, noisy, 0, site) for site in range(200)])
    values = np.concatenate([outcome.delta for outcome in drawn if isinstance(outcome, LocalResult)])
    deviation, error = 3.0 * 0.5, 4 / np.sqrt(2 * len(values))  # four standard errors of a standard deviation
    assert abs(values.std() / deviation - 1) < error
    assert abs(values.std() / (deviation / 1.2) - 1) > error
    assert len(np.unique(values)) == len(values)  # no site's noise is another's


def test_one_sites_fault_costs_that_site_only() -> None:
    model, calls = mlp(), count()

    def fails() -> NDArray[np.int64]:
        if next(calls):
            raise RuntimeError("the disk is gone")
        return np.array([0, 1])

    def foreign() -> NDArray[np.int64]:
        return np.array([0, 6])

    def backwards() -> NDArray[np.int64]:
        return np.array([-1])

    tasks = [task(model, PLAIN, 6, site) for site in range(6)]
    expected = [alone(model, task(model, PLAIN, 6, site)) for site in range(6)]
    for site, draw in ((1, fails), (2, foreign), (4, backwards)):
        tasks[site] = replace(tasks[site], next_batch=draw)
    found = train_together(model, tasks)
    assert [type(outcome).__name__ for outcome in found] == [
        "LocalResult", "RuntimeError", "IndexError", "LocalResult", "IndexError", "LocalResult",
    ]  # fmt: skip
    assert_equal([expected[site] for site in (0, 3, 5)], [found[site] for site in (0, 3, 5)])


def test_unsound_arrays_are_told_by_their_own_site() -> None:
    model = mlp()
    tasks = [task(model, PLAIN, 6, site) for site in range(5)]
    tasks[0] = replace(tasks[0], start=tasks[0].start[:-1])
    tasks[1] = replace(tasks[1], features=tasks[1].features[:, :3])
    tasks[3] = replace(tasks[3], labels=tasks[3].labels + 50)
    found = train_together(model, tasks)
    assert [isinstance(outcome, LocalResult) for outcome in found] == [False, False, True, False, True]


def test_a_chunk_that_fails_is_trained_one_by_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(together, "in_lock_step", broken)
    with caplog.at_level(logging.ERROR):
        expected, found = both(mlp(), [PLAIN] * 3, [5, 0, 7])
    assert_equal(expected, found)
    assert "3 sites could not be trained together" in caplog.text


def test_what_is_held_at_once_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def seen(model: FlatModel, tasks: Sequence[Task], width: int) -> list[Result]:
        sizes.append(len(tasks))
        largest = max(one.features.numel() + min(4, len(one.labels)) * 7 + model.dim for one in tasks)
        assert len(tasks) == 1 or len(tasks) * largest <= 1000
        return in_lock_step(model, tasks, width)

    monkeypatch.setattr(together, "in_lock_step", seen)
    monkeypatch.setattr(together, "_ELEMENTS_AT_ONCE", 1000)
    rows = [3, 40, 0, 7, 200, 12, 9, 1, 30, 22]
    assert_equal(*both(mlp(), [PLAIN] * len(rows), rows))
    assert sum(sizes) == len(rows)
    assert len(sizes) > 2


@pytest.mark.parametrize(
    ("module", "work"),
    [
        (lambda: nn.Sequential(nn.Linear(WIDTH, 4), nn.GroupNorm(2, 4), nn.Linear(4, CLASSES)), PLAIN),
        (lambda: nn.Sequential(nn.Linear(WIDTH, 4), nn.Dropout(0.0), nn.Linear(4, CLASSES)), PLAIN),
        (lambda: nn.Sequential(nn.Linear(WIDTH, CLASSES)), replace(PLAIN, optimizer="dp-adam")),
        (lambda: nn.Sequential(nn.Linear(WIDTH, CLASSES)), replace(PRIVATE, clipping="automatic")),
    ],
)
def test_what_it_does_not_know_it_does_not_touch(
    module: Callable[[], nn.Module], work: LocalWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "in_lock_step", lambda *_: pytest.fail("trained together"))
    model = FlatModel(module().double())
    assert_equal(*both(model, [work] * 3, [5, 4, 7]))


def test_layers_that_stay_at_the_site_stay_its_own() -> None:
    model = FlatModel(build("mlp", input_shape=(WIDTH,), classes=CLASSES, hidden=(7,), seed=2).double(), "head")
    states = [{name: value + site for name, value in model.local_state().items()} for site in range(3)]

    def keeping(one: Task) -> Task:
        return replace(one, local=states[len(one.labels) - 5])

    expected, found = both(model, [PLAIN] * 3, [5, 6, 7], keeping)
    for one, other in zip(expected, found, strict=True):
        assert isinstance(other, LocalResult)
        np.testing.assert_array_equal(other.delta, one.delta)
        for name, value in one.local_state.items():
            np.testing.assert_array_equal(other.local_state[name], value)
