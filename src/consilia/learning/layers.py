"""Kinds of layers that a claim forbids, and what to put in their place."""

from typing import Literal

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.dropout import _DropoutNd

from consilia.core.errors import Problem

Unit = Literal["none", "record", "patient", "site"]

_RANDOM = (_DropoutNd, nn.RReLU, nn.FractionalMaxPool2d, nn.FractionalMaxPool3d)


def random_kind(layer: nn.Module) -> bool:
    """Return True if a layer of this kind may draw at random; one whose probability is zero may, too, except inside others."""
    inside = isinstance(layer, nn.RNNBase | nn.MultiheadAttention) and layer.dropout > 0
    return inside or isinstance(layer, _RANDOM)


def forbidden(model: nn.Module, unit: Unit) -> list[Problem]:
    """Return a problem for each layer whose kind alone rules out a claim for this unit.

    Guarantees:
        Batch statistics mix examples, and running statistics carry rows past clip and noise: neither passes under
        any claim. A mask drawn by position in a batch ties an example's gradient to the examples before it: no layer
        of a kind that draws passes where each example is clipped on its own.
    """
    found: list[Problem] = []
    if unit == "none":
        return found
    inside = unit in ("record", "patient")
    who = "per-example clipping" if inside else "protection of a site"
    for name, layer in model.named_modules():
        where, kind = f"{who} in layer {name or 'model'!r}", type(layer).__name__
        if isinstance(layer, _BatchNorm) or (isinstance(layer, _NormBase) and layer.track_running_stats):
            found.append(Problem(where, "layers that treat each example alone", kind,
                                 f"Replace it with GroupNorm, e.g. {_group_norm(layer)}"))  # fmt: skip
        elif inside and random_kind(layer):
            found.append(Problem(where, "layers that draw nothing at random", kind, _without(layer)))
    return found


def _group_norm(layer: _NormBase) -> str:
    channels = layer.num_features
    groups = next(g for g in (32, 16, 8, 4, 2, 1) if channels % g == 0 and (channels > g or g == 1))
    return f"torch.nn.GroupNorm({groups}, {channels})"


def _without(layer: nn.Module) -> str:
    if isinstance(layer, nn.RNNBase | nn.MultiheadAttention):
        return "Set its dropout to 0"
    if isinstance(layer, nn.RReLU):
        return "Replace it with torch.nn.LeakyReLU"
    return "Remove it" if isinstance(layer, _DropoutNd) else "Replace it with pooling of a fixed window"
