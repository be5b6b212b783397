"""Chains with convolutions: one backward to every layer's output, then each layer in its cheapest form.

A Linear layer's norms are closed forms, as in `linear`. A convolution's per-example gradients are formed
once, serve its norms, and are added up by one product with the clip factors; its weights are few, so that
they fit where a Linear layer's would not.

Source:
    Bu et al. (2022), Differentially private optimization on large model at small cost, section 2
    (book-keeping). Rochette, Manoel and Tramel (2019), Efficient per-example gradient computations in
    convolutional neural networks (grouped convolution).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (the name torch documents)
from torch.nn.grad import conv2d_weight

from consilia.learning.flat import FlatModel
from consilia.learning.persample.chain import gradient_of, hooked, leaves
from consilia.learning.persample.clipping import Clipping, add_clipped
from consilia.learning.persample.engine import Clipped, layer_count
from consilia.learning.persample.parts import Formed, Outer
from consilia.learning.persample.units import Units, split

_ROWS_AT_ONCE = 256
_PATCHES_AT_ONCE = 1 << 20  # elements of unfolded inputs: small enough to stay in the cache
_LARGE_PATCHES = 40_000  # elements an example: above, copying them costs more than a call for each example
_FEW_CHANNELS = 4  # below, one grouped convolution beats unfolding by 1.2 to 2 times; above, it loses up to 2


@dataclass(frozen=True)
class LayeredChain:
    """Exact for `nn.Sequential` of Conv2d, Linear and layers without parameters, each of which treats examples alone."""

    model: FlatModel
    layers: tuple[nn.Module, ...]
    names: dict[int, str]

    @classmethod
    def of(cls, model: FlatModel, rank: int) -> "LayeredChain | None":
        """Return the engine, or None where it would not be exact.

        Args:
            model: The model.
            rank: Number of dimensions of a batch of features; a convolution needs 4.
        """
        chain = tuple(leaves(model.module))
        kinds = [type(layer) for layer in chain]
        plain = all(type(m) in _KNOWN and not hooked(m) for m in model.module.modules())
        owned = [p for layer in chain for p in layer.parameters()]
        once = len({id(p) for p in owned}) == len(owned) == len(model.parameters)
        if not (plain and once and rank == 4 and nn.Flatten in kinds):
            return None
        flat = kinds.index(nn.Flatten)
        ordered = nn.Linear not in kinds[:flat] and nn.Conv2d not in kinds[flat:]
        simple = all(_simple(layer) for layer in chain)
        names = {id(layer): name for name, layer in model.module.named_modules()}
        return cls(model, chain, names) if ordered and simple else None

    def clipped_sum(self, features: Tensor, labels: Tensor, clipping: Clipping, units: Units | None = None) -> Clipped:
        """Write the sum of clipped gradients to `model.grad`."""
        self.model.grad.zero_()
        norms = []
        for rows, some in split(len(labels), units, _ROWS_AT_ONCE):
            book = self._book(features[rows], labels[rows], some)
            parts = [part for layer, a, b in book for part in _parts(self.names[id(layer)], layer, a, b, some)]
            norms.append(add_clipped(parts, clipping, layer_count(self.model)))
        return Clipped(self.model.grad, norms, clipping.bound)

    def _book(self, x: Tensor, y: Tensor, units: Units | None) -> list[tuple[nn.Linear | nn.Conv2d, Tensor, Tensor]]:
        """Return each layer that has parameters, with its inputs and the gradients at its outputs."""
        layers: list[nn.Linear | nn.Conv2d] = []
        inputs, outputs = [], []
        for layer in self.layers:
            if isinstance(layer, nn.Linear | nn.Conv2d):
                layers.append(layer)
                inputs.append(x.detach())
                bias = None if layer.bias is None else layer.bias.detach()
                if isinstance(layer, nn.Conv2d):
                    x = F.conv2d(x, layer.weight.detach(), bias, layer.stride, layer.padding)
                else:
                    x = F.linear(x, layer.weight.detach(), bias)
                x = x if x.requires_grad else x.requires_grad_()
                outputs.append(x)
            else:
                x = torch.relu(x) if isinstance(layer, nn.ReLU) else layer(x)  # never in place
        losses = F.cross_entropy(x, y, reduction="none")
        loss = losses.sum() if units is None else losses @ units.weights.to(losses)
        slopes = torch.autograd.grad(loss, outputs)
        return list(zip(layers, inputs, slopes, strict=True))


_KNOWN = {
    nn.Sequential, nn.Conv2d, nn.Linear, nn.ReLU, nn.Tanh, nn.Flatten, nn.MaxPool2d, nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
}  # fmt: skip


def _simple(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Conv2d):
        return layer.groups == 1 and set(layer.dilation) == {1} and layer.padding_mode == "zeros" and (
            not isinstance(layer.padding, str)
        )  # fmt: skip
    return not isinstance(layer, nn.Flatten) or (layer.start_dim, layer.end_dim) == (1, -1)


def _parts(name: str, layer: nn.Linear | nn.Conv2d, a: Tensor, b: Tensor, units: Units | None) -> list[Outer | Formed]:
    """Return this layer's share of every unit's gradient."""
    bias = None if layer.bias is None else gradient_of(layer.bias)
    if isinstance(layer, nn.Linear):
        a, b = (a[:, None], b[:, None]) if units is None else (units.padded(a), units.padded(b))
        return [Outer(name, a, b, gradient_of(layer.weight), bias)]
    each = [(gradient_of(layer.weight), _weight_gradients(layer, a, b))]
    if bias is not None:
        each.append((bias, b.sum((2, 3))))
    return [Formed(name, into, g if units is None else units.summed(g)) for into, g in each]


def _weight_gradients(layer: nn.Conv2d, a: Tensor, b: Tensor) -> Tensor:
    """Return each example's weight gradient, shape (rows, out, in, height, width)."""
    rows, channels = a.shape[:2]
    out, kernel = b.shape[1], layer.kernel_size
    if channels < _FEW_CHANNELS:
        # Channels as the batch, examples as groups: each example's slopes are kernels over its own inputs.
        kernels = b.reshape(rows * out, 1, *b.shape[2:])
        found = F.conv2d(a.transpose(0, 1), kernels, padding=layer.padding, dilation=layer.stride, groups=rows)
        found = found[:, :, : kernel[0], : kernel[1]]  # what a stride left over
        return found.reshape(channels, rows, out, *kernel).permute(1, 2, 0, 3, 4)
    patch = channels * kernel[0] * kernel[1]
    size = patch * b[0, 0].numel()
    if size > _LARGE_PATCHES:
        shape = layer.weight.shape
        return torch.stack([
            conv2d_weight(a[i : i + 1], shape, b[i : i + 1], stride=layer.stride, padding=layer.padding)  # type: ignore[no-untyped-call]
            for i in range(rows)
        ])  # fmt: skip
    padding = (int(layer.padding[0]), int(layer.padding[1]))  # `_simple` refuses padding by name
    step = max(1, _PATCHES_AT_ONCE // size)
    found = a.new_empty(rows, out, patch)
    for i in range(0, rows, step):
        patches = F.unfold(a[i : i + step], kernel, padding=padding, stride=layer.stride)
        torch.bmm(b[i : i + step].flatten(2), patches.transpose(1, 2), out=found[i : i + step])
    return found.view(rows, out, channels, *kernel)
