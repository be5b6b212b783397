"""What is added to the local gradient against drift. None of it reads data, so it comes after the noise."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from consilia.core.errors import PlanError
from consilia.core.update import Vector
from consilia.learning.flat import FlatModel
from consilia.learning.optimizer import Moving, distance_per_gradient
from consilia.learning.work import LocalWork

Term = Callable[[], None]
Control = tuple[Vector, Vector]


def start_terms(model: FlatModel, work: LocalWork, control: Control | None) -> list[Term]:
    """Return the functions that add to `model.grad` at each step; the model stands at the round's start.

    Args:
        model: The model.
        work: Names weight decay and FedProx's mu.
        control: SCAFFOLD: the coordinator's c and the site's c_i, each of shape (d,).

    Raises:
        PlanError: If SCAFFOLD is asked with fedsgd or Adam: only local sgd moves in proportion to gradients.
    """
    terms = pulls(model, work)
    if control is not None:
        if (work.algorithm, work.optimizer) != ("fedavg", "sgd"):
            raise PlanError.of("scaffold", needs="fedavg with local sgd", got=f"{work.algorithm} with {work.optimizer}",
                               hint="Control variates are in units of the gradient")  # fmt: skip
        terms.append(_scaffold(model, control))
    return terms


def pulls(model: Moving, work: LocalWork) -> list[Term]:
    """Return those terms that pull towards zero and towards the round's start, at which the model stands."""
    terms: list[Term] = []
    if work.weight_decay > 0:
        terms.append(_decay(model, work.weight_decay))
    if work.proximal_mu > 0:
        terms.append(_proximal(model, work.proximal_mu))
    return terms


def _decay(model: Moving, weight: float) -> Term:
    def term() -> None:
        model.grad.add_(model.trainable, alpha=weight)

    return term


def _proximal(model: Moving, mu: float) -> Term:
    """FedProx: the gradient of mu/2 |y - x|^2 on the shared layers.

    Source:
        Li et al. (2020), Federated optimization in heterogeneous networks, algorithm 2.
    """
    anchor = model.shared * mu

    def term() -> None:
        model.shared_grad.add_(model.shared, alpha=mu).sub_(anchor)

    return term


def _scaffold(model: FlatModel, control: Control) -> Term:
    """SCAFFOLD: the step follows g - c_i + c.

    Source:
        Karimireddy et al. (2020), SCAFFOLD, algorithm 1, line 10.
    """
    c, c_i = control
    correction = _tensor(
        c[model.span] - c_i[model.span], model.grad
    )  # neither running statistics nor frozen parts have a gradient

    def term() -> None:
        model.shared_grad.add_(correction)

    return term


def control_change(model: FlatModel, work: LocalWork, control: Control, moved: Vector, steps: int) -> Vector:
    """Return c_i+ - c_i = (x - y) / (K eta) - c, shape (d,), float32; zero on what has no gradient.

    With momentum, K eta is the distance that one unit of gradient moves the model, so that c_i+ is still a
    mean of the site's gradients.

    Args:
        model: The model.
        work: Names eta and momentum.
        control: c and c_i.
        moved: y - x, shape (d,).
        steps: K.

    Source:
        Karimireddy et al. (2020), SCAFFOLD, algorithm 1, line 12, option II.
    """
    change, at = np.zeros_like(moved), model.span
    change[at] = -(moved[at] / distance_per_gradient(work, steps) + control[0][at])
    return change


def _tensor(values: Vector, like: Tensor) -> Tensor:
    return torch.from_numpy(values).to(like)
