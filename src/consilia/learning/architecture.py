"""What installed code built: a digest that both ends compare, and where a vector holds its hidden layers."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from torch import nn

from consilia.core.canonical import Json, digest
from consilia.core.spec import Segment
from consilia.learning.flat import head_layer

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # some layers show where they lie in memory


def architecture(module: nn.Module) -> str:
    """Return the SHA-256 of a model's layers in order: classes, settings, names, shapes and types of their tensors.

    Guarantees:
        Two models of one digest have the same layers with the same settings, as far as these show them (`extra_repr`). What a
        class does with them is not part of it: a site runs its own installed code, whatever the other end has.
    """
    layers: list[Json] = [
        [name, _kind(layer), _ADDRESS.sub("", layer.extra_repr())] for name, layer in module.named_modules()
    ]
    tensors: list[Json] = [
        [name, list(tensor.shape), str(tensor.dtype), tensor.requires_grad]
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    ]
    return digest([layers, tensors])


def _kind(layer: nn.Module) -> str:
    return f"{type(layer).__module__}.{type(layer).__qualname__}"


@dataclass(frozen=True)
class Hidden:
    """A layer before the last, as a vector holds it: one row of weights and one bias for each of its outputs.

    Attributes:
        name: Of the weights.
        start: Where the weights begin.
        bias: Where the biases begin.
        rows: How many outputs it has.
        columns: How many inputs each of them has.
    """

    name: str
    start: int
    bias: int
    rows: int
    columns: int


def hidden_layers(module: nn.Module, segments: Sequence[Segment]) -> tuple[Hidden, ...]:
    """Return the shared layers with weights and biases that are not the head, in order; convolutions row by kernel."""
    at, position = {}, 0
    for part in segments:
        at[part.name] = (position, part.shape)
        position += part.size
    head, found = head_layer(module), []
    for name, (start, shape) in at.items():
        owner, _, leaf = name.rpartition(".")
        bias = name[: len(name) - len(leaf)] + leaf.replace("weight", "bias")
        if owner == head or len(shape) < 2 or bias == name or at.get(bias, (0, ()))[1] != shape[:1]:
            continue
        found.append(Hidden(name, start, at[bias][0], shape[0], prod(shape[1:])))
    return tuple(found)
