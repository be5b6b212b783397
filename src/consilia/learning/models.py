"""The catalogue of reference models, and how a user's own factory is called."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Literal

import torch
from torch import Tensor, nn

from consilia.core.errors import PlanError, Problem
from consilia.learning.layers import Unit, forbidden
from consilia.learning.probe import mixed_examples

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


def _mnist_cnn(shape: Shape) -> nn.Module:
    """The 26,010-parameter net (28 x 28, 10 classes) that most published DP-SGD results on MNIST use.

    Source:
        Papernot et al. (2021), Tempered sigmoid activations for deep learning with DP, table 1.
    """
    channels, height, width = _image(shape, 14)
    body: list[nn.Module] = [
        nn.Conv2d(channels, 16, 8, stride=2, padding=3), shape.act(), nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, 4, stride=2), shape.act(), nn.MaxPool2d(2, stride=1), nn.Flatten(),
    ]  # fmt: skip
    flat = 32 * prod(_shrunk(side, (8, 2, 3), (2, 1, 0), (4, 2, 0), (2, 1, 0)) for side in (height, width))
    return nn.Sequential(*body, nn.Linear(flat, 32), shape.act(), nn.Linear(32, shape.classes))


def _nodule_cnn(shape: Shape) -> nn.Module:
    channels, height, width = _image(shape, 4)
    body: list[nn.Module] = [
        nn.Conv2d(channels, 32, 3, padding=1), shape.act(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), shape.act(), nn.MaxPool2d(2), nn.Flatten(),
    ]  # fmt: skip
    flat = 64 * prod(_shrunk(side, (2, 2, 0), (2, 2, 0)) for side in (height, width))
    return nn.Sequential(*body, nn.Linear(flat, 128), shape.act(), nn.Linear(128, shape.classes))


class _Residual(nn.Module):
    def __init__(self, before: int, after: int, stride: int, shape: Shape) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False), nn.GroupNorm(8, after),
            shape.act(), nn.Conv2d(after, after, 3, padding=1, bias=False), nn.GroupNorm(8, after),
        )  # fmt: skip
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.skip = nn.Conv2d(before, after, 1, stride=stride, bias=False)
        self.act = shape.act()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.act(self.body(x) + self.skip(x))
        return y


def _resnet_gn(shape: Shape) -> nn.Module:
    """Three residual stages of 16, 32 and 64 channels with GroupNorm, which treats each example alone."""
    channels, _, _ = _image(shape, 4)
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1, bias=False), nn.GroupNorm(8, 16), shape.act(),
        _Residual(16, 16, 1, shape), _Residual(16, 32, 2, shape), _Residual(32, 64, 2, shape),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, shape.classes),
    )  # fmt: skip


def _image(shape: Shape, side: int) -> tuple[int, int, int]:
    if len(shape.inputs) != 3 or min(shape.inputs[1:]) < side:
        raise PlanError.of(
            "an image model", needs=f"inputs of shape (channels, height, width), at least {side} x {side}",
            got=shape.inputs, hint="Name logistic or mlp, or image data",
        )  # fmt: skip
    channels, height, width = shape.inputs
    return channels, height, width


def _shrunk(side: int, *layers: tuple[int, int, int]) -> int:
    """Return what is left of an image's side after layers of (kernel, stride, padding)."""
    for kernel, stride, padding in layers:
        side = (side + 2 * padding - kernel) // stride + 1
    return side


CATALOGUE: dict[str, Callable[[Shape], nn.Module]] = {
    "logistic": _logistic,
    "mlp": _mlp,
    "mnist-cnn": _mnist_cnn,
    "nodule-cnn": _nodule_cnn,
    "resnet-gn": _resnet_gn,
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
            model = _from_factory(name, shape)
        elif name in CATALOGUE:
            try:
                model = CATALOGUE[name](shape)
            except (RuntimeError, MemoryError, OverflowError) as error:  # torch's allocator raises a RuntimeError
                raise PlanError.of(
                    "plan section model", needs="a model that fits into memory", got=str(error).splitlines()[0],
                    hint="Make model.hidden narrower",
                ) from error  # fmt: skip
        else:
            raise PlanError.of("plan key model.name", got=repr(name), hint="Name a model of the catalogue",
                               needs=f"one of {', '.join(CATALOGUE)}, or module:factory")  # fmt: skip
    return model


def problems(model: nn.Module, *, unit: Unit, input_shape: Sequence[int]) -> list[Problem]:
    """Return what makes this model unfit for a claim: layers that mix examples, draw at random or keep statistics.

    Args:
        model: The built model.
        unit: The plan's unit of privacy; per-example clipping is probed for "record".
        input_shape: Shape of one example's features.
    """
    found = forbidden(model, unit)
    if unit == "record" and not found:  # a known layer is named; the probe would only tell the same again
        found = mixed_examples(model, input_shape)
    return found


def _from_factory(name: str, shape: Shape) -> nn.Module:
    module, _, attribute = name.partition(":")
    try:
        model = getattr(importlib.import_module(module), attribute)(input_shape=shape.inputs, classes=shape.classes)
        with torch.no_grad():
            got = tuple(model.eval()(torch.zeros(2, *shape.inputs)).shape)
    except (Exception, SystemExit) as error:  # foreign code: whatever it raises is a fault of the plan's model
        raise PlanError.of("plan key model.name", needs=f"a working factory at {name!r}",
                           got=f"{type(error).__name__}: {error}",
                           hint="It is called as factory(input_shape=..., classes=...)") from error  # fmt: skip
    if not isinstance(model, nn.Module) or got != (2, shape.classes):
        raise PlanError.of(
            "plan key model.name", needs=f"a torch module from {name!r} that gives logits (rows, {shape.classes})",
            got=f"{type(model).__name__} that gives shape {got} for 2 rows",
            hint="One logit for each class",
        )  # fmt: skip
    return model.train()
