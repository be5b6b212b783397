"""Local optimizers on the flat vector: a step is a few operations, whatever the number of layers."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from consilia.dp.second_moment import SecondMomentNoise
from consilia.learning.work import LocalWork

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8

Step = Callable[[], None]
Deviation = Callable[[], float]


class Moving(Protocol):
    """What is trained: one model, or those of many sites side by side.

    Attributes:
        trainable: Its values, shape (p,).
        grad: Their gradient, shape (p,).
        shared: The part that travels, a slice of `trainable`.
        shared_grad: Its gradient.
    """

    trainable: Tensor
    grad: Tensor
    shared: Tensor
    shared_grad: Tensor


def start_optimizer(model: Moving, work: LocalWork, deviation: Deviation | None = None) -> Step:
    """Return a step that moves `model.trainable` against `model.grad`, with fresh state.

    Args:
        model: The model.
        work: Names the optimizer and its rate.
        deviation: dp-adam: standard deviation of the noise on each coordinate of the gradient at hand, asked at each step;
            by default z C / expected batch, which holds unless clipping is adaptive.
    """
    if work.optimizer == "adam":
        return _adam(model, work.learning_rate)
    if work.optimizer == "dp-adam":
        return _dp_adam(model, work.learning_rate, deviation or _planned(work))
    if work.momentum > 0:
        return _momentum(model, work.learning_rate, work.momentum)
    values, grad, rate = model.trainable, model.grad, work.learning_rate

    def step() -> None:
        values.add_(grad, alpha=-rate)

    return step


def _momentum(model: Moving, rate: float, momentum: float) -> Step:
    values, grad = model.trainable, model.grad
    velocity = torch.zeros_like(values)

    def step() -> None:
        velocity.mul_(momentum).add_(grad)
        values.add_(velocity, alpha=-rate)

    return step


def _adam(model: Moving, rate: float) -> Step:
    """Adam with bias correction.

    Source:
        Kingma and Ba (2015), Adam, algorithm 1.
    """
    values, grad = model.trainable, model.grad
    first, second, count = torch.zeros_like(values), torch.zeros_like(values), 0

    def step() -> None:
        nonlocal count
        count += 1
        first.lerp_(grad, 1 - _BETA1)
        second.mul_(_BETA2).addcmul_(grad, grad, value=1 - _BETA2)
        root = (second / (1 - _BETA2**count)).sqrt_().add_(_EPSILON)
        values.addcdiv_(first, root, value=-rate / (1 - _BETA1**count))

    return step


def _dp_adam(model: Moving, rate: float, deviation: Deviation) -> Step:
    """Adam that divides by the gradient's size, not by the noise's.

    Under noise of variance s^2 Adam's v tends to g^2 + s^2: where s is large all steps shrink alike, and Adam becomes sgd of
    rate eta / s. Here s^2, which is public, is taken off. Reads the noisy gradient only, so it costs no privacy.

    Source:
        Tang, Shpilevskiy and Lecuyer (2024), DP-AdamBC, algorithm 1; for the floor see `SecondMomentNoise`.
    """
    values, grad = model.trainable, model.grad
    first, second, share = torch.zeros_like(values), torch.zeros_like(values), SecondMomentNoise()

    def step() -> None:
        nonlocal share
        share = share.after(deviation() ** 2, _BETA2)
        weight, noise, floor = share.corrected(_BETA2)
        first.lerp_(grad, 1 - _BETA1)
        second.mul_(_BETA2).addcmul_(grad, grad, value=1 - _BETA2)
        root = (second / weight).sub_(noise).clamp_(min=floor).sqrt_().add_(_EPSILON)
        values.addcdiv_(first, root, value=-rate / (1 - _BETA1**share.steps))

    return step


def _planned(work: LocalWork) -> Deviation:
    if work.clip_norm is None:
        return lambda: 0.0
    deviation = work.noise_multiplier * work.clip_norm / work.expected_batch
    return lambda: deviation


def distance_per_gradient(work: LocalWork, steps: int) -> float:
    """Return by how much one unit of a constant gradient moves the model in `steps` steps of sgd.

    eta x K for plain sgd; with momentum rho each gradient goes on acting: eta (K - rho (1 - rho^K) / (1 -
    rho)) / (1 - rho).

    Source:
        Wang et al. (2020), FedNova, section 3 (the norm of the vector a_i).
    """
    rho = work.momentum
    return work.learning_rate * (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)
