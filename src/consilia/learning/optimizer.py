"""Local optimizers on the flat vector: a step is a few operations, whatever the number of layers."""

from collections.abc import Callable

import torch

from consilia.learning.flat import FlatModel
from consilia.learning.work import LocalWork

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8

Step = Callable[[], None]


def start_optimizer(model: FlatModel, work: LocalWork) -> Step:
    """Return a step that moves `model.trainable` against `model.grad`, with fresh state."""
    if work.optimizer == "adam":
        return _adam(model, work.learning_rate)
    if work.momentum > 0:
        return _momentum(model, work.learning_rate, work.momentum)
    values, grad, rate = model.trainable, model.grad, work.learning_rate

    def step() -> None:
        values.add_(grad, alpha=-rate)

    return step


def _momentum(model: FlatModel, rate: float, momentum: float) -> Step:
    values, grad = model.trainable, model.grad
    velocity = torch.zeros_like(values)

    def step() -> None:
        velocity.mul_(momentum).add_(grad)
        values.add_(velocity, alpha=-rate)

    return step


def _adam(model: FlatModel, rate: float) -> Step:
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


def distance_per_gradient(work: LocalWork, steps: int) -> float:
    """Return by how much one unit of a constant gradient moves the model in `steps` steps of sgd.

    eta x K for plain sgd; with momentum rho each gradient goes on acting: eta (K - rho (1 - rho^K) / (1 -
    rho)) / (1 - rho).

    Source:
        Wang et al. (2020), FedNova, section 3 (the norm of the vector a_i).
    """
    rho = work.momentum
    return work.learning_rate * (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)
