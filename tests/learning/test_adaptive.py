"""A bound that follows a quantile of the norms: where it ends, what its count's noise costs, and what it never reads."""

from math import exp, sqrt

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn

from consilia.core.errors import PlanError
from consilia.core.randomness import SecretRng, SharedSeed
from consilia.learning.flat import FlatModel
from consilia.learning.persample.units import Units
from consilia.learning.private import PrivateGradient, private_gradient
from consilia.learning.work import LocalWork

WIDTH, ROWS, Z, COUNT_NOISE = 6, 400, 1.1, 20.0


def secret(seed: int = 0) -> SecretRng:
    return SecretRng.reproducible_from(SharedSeed.of(seed))


def work(**changes: object) -> LocalWork:
    terms: dict[str, object] = {
        "algorithm": "fedsgd", "clip_norm": 1.0, "clipping": "adaptive", "expected_batch": float(ROWS),
        "noise_multiplier": Z, "count_noise": COUNT_NOISE, "target_quantile": 0.5, "clip_learning_rate": 0.2, **changes,
    }  # fmt: skip
    return LocalWork(**terms)  # type: ignore[arg-type]


def rows(count: int = ROWS) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, WIDTH, generator=generator) * torch.linspace(0.2, 3, count)[:, None], torch.arange(
        count
    ) % 2


def gradient(terms: LocalWork, bound: float | None = None, seed: int = 0, width: int = WIDTH) -> PrivateGradient:
    torch.manual_seed(0)
    return private_gradient(FlatModel(nn.Sequential(nn.Linear(width, 2))), terms, 2, secret(seed), bound)


def norms() -> NDArray[np.float64]:
    features, labels = rows()
    model = FlatModel(nn.Sequential(nn.Linear(WIDTH, 2)))
    torch.manual_seed(0)
    model.set(FlatModel(nn.Sequential(nn.Linear(WIDTH, 2))).get())
    found = []
    for x, y in zip(torch.split(features, 1), torch.split(labels, 1), strict=True):
        loss = torch.nn.functional.cross_entropy(model.module(x), y)
        found.append(
            float(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.module.parameters()))]).norm())
        )
    return np.array(found)


@pytest.mark.parametrize("start", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("quantile", [0.3, 0.5, 0.8])
def test_the_bound_comes_to_the_quantile_from_far_below_and_above(start: float, quantile: float) -> None:
    step = gradient(work(target_quantile=quantile), bound=start)
    batch = rows()
    found = []
    for _ in range(260):
        step(*batch)
        found.append(step.bound)
    share = float(np.mean(norms() <= np.mean(found[-60:])))
    assert abs(share - quantile) < 0.06


def test_a_larger_target_gives_a_larger_bound_and_units_are_counted_not_rows() -> None:
    batch = rows()
    units = Units(torch.arange(ROWS) // 4, ROWS // 4)
    half, most, whole = (
        gradient(work(target_quantile=q, expected_batch=n, count_noise=5.0), bound=1.0)
        for q, n in ((0.5, 400.0), (0.9, 400.0), (0.5, 100.0))
    )
    for _ in range(150):
        half(*batch)
        most(*batch)
        whole(*batch, units)
    assert most.bound > 1.3 * half.bound
    assert whole.bound < half.bound  # a mean of four gradients is shorter than the middle one of them


def test_a_step_follows_the_formula_and_divides_by_the_public_batch() -> None:
    features, labels = rows()
    quiet = work(noise_multiplier=0.0, count_noise=0.0, expected_batch=1000.0)
    step = gradient(quiet, bound=0.7)
    step(features[:300], labels[:300])
    centred = int((norms()[:300] <= 0.7).sum()) - 150
    assert step.bound == pytest.approx(0.7 * exp(-0.2 * (centred / 1000 + 0.5 - 0.5)), rel=1e-9)


def spread_fits(sample: NDArray[np.float64], deviation: float) -> bool:
    tail = float(stats.chi2.cdf(float(np.square(sample / deviation).sum()), len(sample)))
    return 1e-4 < tail < 1 - 1e-4


def test_sum_and_count_carry_the_noise_that_together_costs_z() -> None:
    """The sum's noise is larger than z C by what the count's takes; the count's is `count_noise` units."""
    wide, empty = 3000, (torch.zeros(0, 3000), torch.zeros(0, dtype=torch.int64))
    z_sum = 1 / sqrt(Z**-2 - (2 * 1.0) ** -2)
    terms = work(count_noise=1.0, expected_batch=10.0)
    step = gradient(terms, width=wide)
    moves, sums = [], []
    for _ in range(400):
        before = step.bound
        step(*empty)
        moves.append(-np.log(step.bound / before) / 0.2 * 10)  # the noised count of an empty batch, in units
        sums.append(step._model.grad.numpy()[:50] * 10 / before)
    counts, noise = np.array(moves), np.concatenate(sums).astype(np.float64)
    for sample, deviation in ((counts, 1.0), (noise, z_sum)):
        assert stats.kstest(sample / deviation, "norm").pvalue > 1e-4
        assert spread_fits(sample, deviation)
        assert not spread_fits(sample, deviation * 1.2)
        assert not spread_fits(sample, deviation / 1.2)
    assert not spread_fits(noise, Z)  # with z alone the pair would cost more than z
    assert z_sum**-2 + (2 * 1.0) ** -2 == pytest.approx(Z**-2)


@pytest.mark.parametrize("quantile", [0.1, 0.9])
def test_empty_batches_and_bad_rows_leave_a_sound_bound(quantile: float) -> None:
    step = gradient(work(target_quantile=quantile, clip_learning_rate=2.0, expected_batch=1.0))
    for _ in range(60):
        step(torch.zeros(0, WIDTH), torch.zeros(0, dtype=torch.int64))
        assert 0 < step.bound <= 1e9
        assert torch.isfinite(step._model.grad).all()
    bad = gradient(work(noise_multiplier=0.0, count_noise=0.0))
    bad(torch.full((50, WIDTH), float("nan")), torch.zeros(50, dtype=torch.int64))
    assert bad.bound == 1.0  # rows that are no numbers have no norm: they neither raise nor lower it
    assert not bad._model.grad.any()


def test_one_unit_moves_the_pair_by_at_most_one_and_a_half() -> None:
    features, labels = rows(30)
    quiet = work(noise_multiplier=0.0, count_noise=0.0, expected_batch=1.0, clip_learning_rate=1.0)

    def released(count: int) -> tuple[Tensor, float]:
        step = gradient(quiet, bound=0.6)
        step(features[:count], labels[:count])
        return step._model.grad.double() / 0.6, -float(np.log(step.bound / 0.6))

    for count in range(1, 30):
        (sum_with, count_with), (sum_without, count_without) = released(count), released(count - 1)
        assert float((sum_with - sum_without).norm()) <= 1 + 1e-4
        assert abs(count_with - count_without) == pytest.approx(0.5, abs=1e-6)


def test_a_count_whose_noise_costs_all_of_z_is_refused() -> None:
    with pytest.raises(PlanError, match=r"Raise privacy\.count_noise"):
        work(count_noise=Z / 2)


@pytest.mark.parametrize("views", [1, 4])
def test_views_are_drawn_and_a_record_still_counts_once(views: int) -> None:
    torch.manual_seed(0)
    images, labels = torch.randn(5, 1, 8, 8), torch.arange(5) % 2
    model = FlatModel(nn.Sequential(nn.Flatten(), nn.Linear(64, 2)))
    terms = LocalWork(algorithm="fedsgd", clip_norm=0.1, expected_batch=1.0, views=views, augment="shift-flip")
    sums = []
    for seed in (1, 2):
        step = private_gradient(model, terms, 4, secret(seed))
        step(images, labels)
        sums.append(model.grad.clone())
        assert float(sums[-1].norm()) <= 0.5 * (1 + 1e-6)
    step(images[:1], labels[:1])
    assert 0.09 < float(model.grad.norm()) <= 0.1 * (1 + 1e-6)
    assert not torch.allclose(sums[0], sums[1])
    step(images[:0], labels[:0])
    assert not model.grad.any()
