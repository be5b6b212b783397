"""The catalogue of reference models, and how a user's own factory is called."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Literal

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from consilia.core.errors import PlanError, Problem

Activation = Literal["relu", "tanh"]
_ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}


@dataclass(frozen=True)
class Shape:
    """What a model is built for.

    Attributes:
        inputs: Shape of one example's features.
        classes: Number of classes.
        hidden: Widths of the hidden layers (mlp).
        activation: Which activation follows each layer.
    """

    inputs: tuple[int, ...]
    classes: int
    hidden: tuple[int, ...]
    activation: Activation

    def act(self) -> nn.Module:
        """Return a fresh activation layer."""
        return _ACTIVATIONS[self.activation]()


def _logistic(shape: Shape) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape.inputs), shape.classes))


def _mlp(shape: Shape) -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten()]
    widths = [prod(shape.inputs), *shape.hidden]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), shape.act()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], shape.classes))


CATALOGUE: dict[str, Callable[[Shape], nn.Module]] = {
    "logistic": _logistic,
    "mlp": _mlp,
}


def build(
    name: str,
    *,
    input_shape: Sequence[int],
    classes: int,
    hidden: Sequence[int] = (64,),
    activation: Activation = "relu",
    seed: int,
) -> nn.Module:
    """Build a model; the same arguments give the same weights. Torch's global generator is left as it was.

    Args:
        name: A name of `CATALOGUE`, or "package.module:factory" of installed code, called as
            factory(input_shape=..., classes=...).
        input_shape: Shape of one example's features.
        classes: Number of classes.
        hidden: Widths of the hidden layers (mlp).
        activation: "relu" or "tanh".
        seed: Public seed of the initial weights.

    Raises:
        PlanError: If the name is unknown, or the model cannot be built for this input.
    """
    shape = Shape(tuple(input_shape), classes, tuple(hidden), activation)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if ":" in name:
            return _from_factory(name, shape)
        if name not in CATALOGUE:
            raise PlanError.of("plan key model.name", got=repr(name), hint="Name a model of the catalogue",
                               needs=f"one of {', '.join(CATALOGUE)}, or module:factory")  # fmt: skip
        return CATALOGUE[name](shape)


def problems(model: nn.Module, per_example: bool) -> list[Problem]:
    """Return what makes this model unfit: nothing to train, or layers that mix clipped examples.

    Args:
        model: The built model.
        per_example: True if each example's gradient is clipped on its own.
    """
    found = []
    if not any(p.requires_grad and p.numel() for p in model.parameters()):
        found.append(
            Problem("the model", "a trainable parameter", "none", "Leave requires_grad on somewhere")
        )
    if per_example:
        for name, layer in model.named_modules():
            if isinstance(layer, _BatchNorm):
                found.append(Problem(
                    f"per-example clipping in layer {name or 'model'!r}",
                    "layers that treat each example alone", type(layer).__name__, f"Replace it with GroupNorm, e.g. {_group_norm(layer)}",
                ))  # fmt: skip
    return found


def _group_norm(layer: _BatchNorm) -> str:
    channels = layer.num_features
    groups = next(g for g in (32, 16, 8, 4, 2, 1) if channels % g == 0 and (channels > g or g == 1))
    return f"torch.nn.GroupNorm({groups}, {channels})"


def _from_factory(name: str, shape: Shape) -> nn.Module:
    module, _, attribute = name.partition(":")
    try:
        factory = getattr(importlib.import_module(module), attribute)
        model = factory(input_shape=shape.inputs, classes=shape.classes)
    except Exception as error:  # a factory is foreign code: whatever it raises is a fault of the plan's model
        raise PlanError.of("plan key model.name", needs=f"an installed factory at {name!r}",
                           got=f"{type(error).__name__}: {error}",
                           hint="It is called as factory(input_shape=..., classes=...)") from error  # fmt: skip
    if not isinstance(model, nn.Module):
        raise PlanError.of("plan key model.name", needs=f"a torch module from {name!r}",
                           got=type(model).__name__, hint="Return a torch.nn.Module")  # fmt: skip
    return model
