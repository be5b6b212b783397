"""What a learner's deltas show of clip and noise, and that these checks reject a wrong learner."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn

from consilia.core.errors import PlanError
from consilia.core.randomness import SecretRng, SharedSeed
from consilia.learning import private
from consilia.learning.flat import FlatModel
from consilia.learning.local import LocalResult, train
from consilia.learning.models import build
from consilia.learning.persample import clipping
from consilia.learning.private import private_gradient
from consilia.learning.work import LocalWork

NoBatch = Callable[[], NDArray[np.int64]]
CLIP, EXPECTED = 0.5, 20.0
FEATURES = 1500


def secret(seed: int = 0) -> SecretRng:
    return SecretRng.reproducible_from(SharedSeed.of(seed))


def rows(count: int, width: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(count, width, generator=generator)
    return features, torch.randint(0, 2, (count,), generator=generator)


def work(**changes: object) -> LocalWork:
    terms: dict[str, object] = {
        "algorithm": "fedsgd", "clip_norm": CLIP, "expected_batch": EXPECTED, "noise_multiplier": 1.3, **changes,
    }  # fmt: skip
    return LocalWork(**terms)  # type: ignore[arg-type]


def one_round(
    features: Tensor, labels: Tensor, terms: LocalWork, rng: SecretRng, no_batch: NoBatch, name: str = "logistic"
) -> LocalResult:
    model = FlatModel(build(name, input_shape=features.shape[1:], classes=2, hidden=(8,), seed=3))
    return train(model, model.get(), features, labels, terms, secret=rng, public=SharedSeed.of(0), next_batch=no_batch)


def noise_seen(terms: LocalWork, rng: SecretRng, no_batch: NoBatch) -> NDArray[np.float64]:
    """Run the same data with and without noise: the difference of the deltas is the noise that was added."""
    features, labels = rows(4, FEATURES)
    quiet = work(**{**terms.__dict__, "noise_multiplier": 0.0})
    noisy = [one_round(features, labels, terms, rng, no_batch).delta for _ in range(4)]
    return np.concatenate(noisy).astype(np.float64) - np.tile(
        one_round(features, labels, quiet, rng, no_batch).delta, 4
    )


def fits(sample: NDArray[np.float64], deviation: float) -> bool:
    return bool(stats.kstest(sample / deviation, "norm").pvalue > 1e-4)


class _Weak(SecretRng):
    """A generator whose noise is too small by the factor 1.2."""

    def normal(self, size: int) -> NDArray[np.float64]:
        return super().normal(size) / 1.2


@pytest.mark.parametrize("z", [0.4, 1.3])
def test_one_gradient_carries_noise_of_z_times_c(z: float, no_batch: NoBatch) -> None:
    deviation = z * CLIP / EXPECTED
    assert fits(noise_seen(work(noise_multiplier=z), secret(), no_batch), deviation)
    assert not fits(noise_seen(work(noise_multiplier=z), _Weak(bytes(32)), no_batch), deviation)
    assert not fits(noise_seen(work(noise_multiplier=z / 1.2), secret(), no_batch), deviation)


def test_every_local_step_adds_fresh_noise(no_batch: NoBatch) -> None:
    empty = rows(0, FEATURES)
    for steps in (1, 9):
        terms = work(algorithm="fedavg", steps=steps, learning_rate=0.2)
        delta = one_round(*empty, terms, secret(), no_batch).delta.astype(np.float64)
        deviation = 0.2 * 1.3 * CLIP / EXPECTED * steps**0.5  # equal noise at each step would give `steps` instead
        assert fits(delta, deviation)
        assert not fits(delta, deviation / 1.2)


def test_rounds_and_coordinates_do_not_share_noise(no_batch: NoBatch) -> None:
    rng = secret()
    first, second = (one_round(*rows(0, FEATURES), work(), rng, no_batch).delta for _ in range(2))
    limit = 5 / len(first) ** 0.5
    assert abs(np.corrcoef(first, second)[0, 1]) < limit
    assert abs(np.corrcoef(first[1:], first[:-1])[0, 1]) < limit


def sensitivity_seen(clip_norm: float, no_batch: NoBatch, name: str) -> float:
    """Return the largest move of the summed gradient that adding one record makes, over records of all sizes."""
    features, labels = rows(12, 6)
    terms = work(clip_norm=clip_norm, noise_multiplier=0.0)
    base = one_round(features, labels, terms, secret(), no_batch, name).delta
    moves = []
    for scale in (1e-3, 1.0, 1e3, 1e6):
        for label in (0, 1):
            record = scale * torch.ones(1, 6)
            added = one_round(
                torch.cat([features, record]), torch.cat([labels, torch.tensor([label])]), terms, secret(),
                no_batch, name,
            ).delta  # fmt: skip
            moves.append(float(np.linalg.norm(added - base)) * EXPECTED)
    return max(moves)


@pytest.mark.parametrize("name", ["logistic", "mlp"])
def test_one_record_moves_the_sum_by_at_most_the_clip_norm(
    name: str, no_batch: NoBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert CLIP * 0.99 < sensitivity_seen(CLIP, no_batch, name) < CLIP * 1.001
    assert sensitivity_seen(1.2 * CLIP, no_batch, name) > CLIP * 1.001
    monkeypatch.setattr(clipping, "clip_factors", lambda norms, _clip: torch.ones_like(norms))
    assert sensitivity_seen(CLIP, no_batch, name) > CLIP * 1.001


def test_batch_gradient_is_clipped_per_example_not_as_a_whole(no_batch: NoBatch) -> None:
    features, labels = torch.ones(30, 6) * 100, torch.zeros(30, dtype=torch.int64)
    delta = one_round(features, labels, work(noise_multiplier=0.0), secret(), no_batch).delta
    assert np.linalg.norm(delta) * EXPECTED == pytest.approx(30 * CLIP, rel=1e-4)


@pytest.mark.parametrize("algorithm", ["fedavg", "fedsgd"])
@settings(max_examples=10, deadline=None)
@given(st.lists(st.sampled_from([float("nan"), float("inf"), -float("inf")]), min_size=1, max_size=5))
def test_bad_examples_change_nothing(algorithm: str, no_batch: NoBatch, values: list[float]) -> None:
    features, labels = rows(9, 6)
    bad = torch.ones(len(values), 6)
    bad[:, 2] = torch.tensor(values)
    terms = work(algorithm=algorithm, steps=3 if algorithm == "fedavg" else 1)
    clean = one_round(features, labels, terms, secret(), no_batch)
    spoilt = one_round(
        torch.cat([bad, features]), torch.cat([torch.zeros(len(bad), dtype=torch.int64), labels]), terms, secret(),
        no_batch,
    )  # fmt: skip
    assert np.isfinite(spoilt.delta).all()
    np.testing.assert_allclose(spoilt.delta, clean.delta, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_only_bad_or_no_rows_still_steps_with_noise(optimizer: str, no_batch: NoBatch) -> None:
    terms = work(algorithm="fedavg", steps=2, optimizer=optimizer)
    nothing = one_round(*rows(0, 6), terms, secret(), no_batch).delta
    only_bad = one_round(torch.full((3, 6), float("nan")), torch.zeros(3, dtype=torch.int64), terms, secret(),
                         no_batch).delta  # fmt: skip
    assert np.isfinite(nothing).all()
    assert np.abs(nothing).min() > 0
    np.testing.assert_array_equal(nothing, only_bad)


def test_divisor_is_public_whatever_came(no_batch: NoBatch) -> None:
    features, labels = rows(7, 6)
    once = one_round(features, labels, work(noise_multiplier=0.0), secret(), no_batch).delta
    twice = one_round(torch.cat([features] * 2), torch.cat([labels] * 2), work(noise_multiplier=0.0), secret(),
                      no_batch).delta  # fmt: skip
    np.testing.assert_allclose(twice, 2 * once, rtol=1e-5)


def test_training_loss_is_not_told_under_privacy(no_batch: NoBatch) -> None:
    features, labels = rows(7, 6)
    assert one_round(features, labels, work(), secret(), no_batch).loss is None
    plain = work(clip_norm=None, noise_multiplier=0.0, expected_batch=0.0)
    assert one_round(features, labels, plain, secret(), no_batch).loss is not None


class _Remembers(nn.Module):
    """A layer that keeps a running mean of its inputs, as no known class does."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(6))
        self.layer = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.seen.copy_(0.9 * self.seen + 0.1 * x.mean(0))
        y: Tensor = self.layer(x)
        return y


def test_statistics_that_a_layer_keeps_by_itself_do_not_leave(no_batch: NoBatch) -> None:
    model = FlatModel(_Remembers())
    delta = train(
        model, model.get(), *rows(5, 6), work(), secret=secret(), public=SharedSeed.of(0), next_batch=no_batch
    ).delta
    assert [segment.name for segment in model.segments][-1] == "seen"
    assert not delta[-6:].any()


def test_a_gradient_without_a_clip_is_no_private_one() -> None:
    with pytest.raises(PlanError, match=r"a private gradient needs a clip norm.*Set privacy.clip_norm"):
        private_gradient(FlatModel(nn.Linear(6, 2)), LocalWork(), 2, secret())


def test_a_large_batch_rounds_hardly_more_than_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that all point one way, in float32: added up in one go, taking a row away moves the sum by 1e-3 C more."""
    count, clip_norm = 12_000, 0.05
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(1, 108, generator=generator) + 0.01 * torch.randn(count, 108, generator=generator)
    labels = torch.zeros(count, dtype=torch.int64)
    model = FlatModel(build("mlp", input_shape=(108,), classes=2, seed=3))
    gradient = private_gradient(model, work(noise_multiplier=0.0, clip_norm=clip_norm, expected_batch=1.0), 2, secret())

    def summed(rows: Tensor) -> Tensor:
        gradient(features[rows], labels[rows])
        return model.grad.double()

    def error() -> float:
        rows = torch.arange(count)
        moved = summed(rows) - summed(rows[1:])
        return float((moved - summed(rows[:1])).norm()) / clip_norm

    in_parts = error()
    assert in_parts < 2e-3  # float32 keeps the sum itself to 12,000 x 2^-24 C = 7e-4 C
    monkeypatch.setattr(private, "_ROWS_AT_ONCE", count)
    assert error() > in_parts


@pytest.mark.parametrize(
    "layer",
    [nn.BatchNorm1d(6), nn.InstanceNorm1d(6, track_running_stats=True), nn.Dropout(0.5), nn.Dropout(0.0), nn.RReLU()],
)
def test_layers_that_tie_examples_are_refused_in_the_learner_too(layer: nn.Module, no_batch: NoBatch) -> None:
    model = FlatModel(nn.Sequential(layer, nn.Linear(6, 2)))
    with pytest.raises(PlanError, match=r"GroupNorm|Remove it|LeakyReLU"):
        train(model, model.get(), *rows(5, 6), work(), secret=secret(), public=SharedSeed.of(0),
              next_batch=no_batch)  # fmt: skip
