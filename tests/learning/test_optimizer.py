"""DP-Adam on the flat vector: right steps under noise, where Adam's shrink with the noise."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from torch import nn

from consilia.learning.flat import FlatModel
from consilia.learning.optimizer import start_optimizer
from consilia.learning.work import LocalWork

EACH = 500  # coordinates that share a true gradient: one run is as many trials
NOISY = LocalWork(clip_norm=2.0, noise_multiplier=3.0, expected_batch=6.0, learning_rate=1.0)  # deviation 3 x 2 / 6 = 1


def model_of(size: int) -> FlatModel:
    return FlatModel(nn.Linear(size, 1, bias=False))


def move(
    work: LocalWork,
    gradients: list[float],
    *,
    steps: int,
    noise: float | Callable[[int], float] = 1.0,
    told: Callable[[], float] | None = None,
) -> list[float]:
    """Return the mean step at the end, over the coordinates of each true gradient; the noise is fresh at each step."""
    model, rng = model_of(len(gradients) * EACH), np.random.default_rng(1)
    truth = torch.tensor(gradients).repeat_interleave(EACH)
    step, last = start_optimizer(model, work, told), torch.zeros(0)
    for k in range(steps):
        deviation = noise(k) if callable(noise) else noise
        model.grad.copy_(truth + deviation * torch.from_numpy(rng.standard_normal(len(truth))))
        before = model.trainable.clone()
        step()
        last = before - model.trainable
    return [float(part.mean()) for part in torch.split(last, EACH)]


def test_a_gradient_below_the_noise_gets_a_full_step_and_adam_gives_it_a_small_one() -> None:
    gradients = [0.3, 1.0, 3.0]
    plain = move(replace(NOISY, optimizer="adam"), gradients, steps=400)
    corrected = move(replace(NOISY, optimizer="dp-adam"), gradients, steps=400)
    assert plain[0] < 0.4  # g / sqrt(g^2 + 1) = .29
    assert plain[1] < 0.8
    assert corrected == pytest.approx([1, 1, 1], abs=0.15)  # g / |g|


def test_minus_a_gradient_moves_the_other_way() -> None:
    work = replace(NOISY, optimizer="dp-adam")
    assert move(work, [-1.0], steps=200)[0] == pytest.approx(-1, abs=0.15)


def test_steps_of_pure_noise_stay_bounded() -> None:
    # With a tiny constant floor one coordinate in two would be divided by it: steps of thousands.
    model, rng = model_of(5000), np.random.default_rng(0)
    step = start_optimizer(model, replace(NOISY, optimizer="dp-adam"))
    for _ in range(200):
        model.grad.copy_(torch.from_numpy(rng.standard_normal(5000)))
        before = model.trainable.clone()
        step()
        moved = model.trainable - before
        assert float(moved.square().mean().sqrt()) < 1.0
        assert float(moved.abs().max()) < 6.0


def test_noise_that_changes_is_followed() -> None:
    def deviation(k: int) -> float:
        return 3.0 if k < 100 else 0.5

    steps = iter(range(200))
    work = replace(NOISY, optimizer="dp-adam")
    told = move(work, [1.0], steps=200, noise=deviation, told=lambda: deviation(next(steps)))
    untold = move(work, [1.0], steps=200, noise=deviation)
    assert told[0] == pytest.approx(1, abs=0.2)
    assert untold[0] < 0.7  # the loud beginning is still in v


@pytest.mark.parametrize("work", [LocalWork(), LocalWork(clip_norm=1.0, expected_batch=4.0)])
def test_without_noise_it_is_adam(work: LocalWork) -> None:
    found = []
    kinds: tuple[Literal["adam", "dp-adam"], ...] = ("adam", "dp-adam")
    for kind in kinds:
        model = model_of(4)
        model.trainable.zero_()
        step = start_optimizer(model, replace(work, optimizer=kind, learning_rate=0.1))
        for k in range(5):
            model.grad.copy_(torch.tensor([1.0, -2.0, 0.0, 1e-4]) * (k + 1))
            step()
        found.append(model.trainable.clone())
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-7)
