"""The catalogue of reference models, and how a user's own factory is called."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Literal

import torch
from torch import nn

from consilia.core.errors import PlanError, Problem
from consilia.learning.blocks.attention import AttentionBlock, ColumnTokens, FirstToken
from consilia.learning.blocks.norm import group_norm
from consilia.learning.blocks.residual import Residual, convolution
from consilia.learning.layers import Unit, forbidden
from consilia.learning.probe import mixed_examples
from consilia.learning.seeded import seeded

Activation = Literal["relu", "tanh"]
_ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}
_MOST_COLUMNS = 1024


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


def _lung_cnn(shape: Shape) -> nn.Module:
    """For slices of 64 x 64 and more: the first layer has a stride, and the last map is pooled to 4 x 4 whatever the input.

    At 128 x 128 it has 90,000 parameters where `nodule-cnn` has 8.4 million, and holds 1 MB of maps an example.
    """
    channels, _, _ = _image(shape, 8)
    return nn.Sequential(
        nn.Conv2d(channels, 16, 5, stride=2, padding=2), shape.act(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), shape.act(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), shape.act(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        nn.Linear(1024, 64), shape.act(), nn.Linear(64, shape.classes),
    )  # fmt: skip


def _resnet(shape: Shape, *, standardized: bool) -> nn.Module:
    channels, _, _ = _image(shape, 4)
    return nn.Sequential(
        convolution(channels, 16, 3, stride=1, padding=1, standardized=standardized), group_norm(16), shape.act(),
        *(
            Residual(before, after, stride=stride, act=shape.act, standardized=standardized)
            for before, after, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2))
        ),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, shape.classes),
    )  # fmt: skip


def _resnet_gn(shape: Shape) -> nn.Module:
    """Three residual stages of 16, 32 and 64 channels with GroupNorm, which treats each example alone."""
    return _resnet(shape, standardized=False)


def _ws_resnet(shape: Shape) -> nn.Module:
    """`resnet-gn` with standardised kernels.

    Source:
        De et al. (2022), Unlocking high-accuracy differentially private image classification through scale (both under DP).
    """
    return _resnet(shape, standardized=True)


def _tabular_transformer(shape: Shape) -> nn.Module:
    """Two blocks of four heads over the columns, 32 wide: 17,250 parameters for two classes, and 64 for each column."""
    columns, width = prod(shape.inputs), 32
    if columns > _MOST_COLUMNS:
        raise PlanError.of("model tabular-transformer", needs=f"at most {_MOST_COLUMNS} columns", got=columns,
                           hint="Every column attends to every other; name logistic or mlp")  # fmt: skip
    return nn.Sequential(
        nn.Flatten(), ColumnTokens(columns, width), AttentionBlock(width, 4, shape.act),
        AttentionBlock(width, 4, shape.act),
        FirstToken(), nn.LayerNorm(width), nn.Linear(width, shape.classes),
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
    "lung-cnn": _lung_cnn,
    "resnet-gn": _resnet_gn,
    "ws-resnet": _ws_resnet,
    "tabular-transformer": _tabular_transformer,
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
    with seeded(seed):
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
        unit: The plan's unit of privacy; per-example clipping is probed for "record" and "patient".
        input_shape: Shape of one example's features.
    """
    found = forbidden(model, unit)
    if unit in ("record", "patient") and not found:  # a known layer is named; the probe would only tell the same again
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
