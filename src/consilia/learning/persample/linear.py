"""Chains of Linear layers: an example's gradient is an outer product, so its norm needs no gradient.

For a Linear layer with input a and gradient b at its output, the example's weight gradient is b a^T with norm
|b| |a|, and its bias gradient is b. One forward and one backward by hand give every a and b; the clipped sum
is (c * B)^T A.

Source:
    Goodfellow (2015), Efficient per-example gradient computations; Bu et al. (2022), Differentially private
    optimization on large model at small cost (book-keeping), section 2.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (the name torch documents)

from consilia.learning.flat import FlatModel
from consilia.learning.persample.chain import gradient_of, hooked, leaves
from consilia.learning.persample.clipping import Clipping, add_clipped
from consilia.learning.persample.engine import Clipped, layer_count
from consilia.learning.persample.parts import Outer
from consilia.learning.persample.units import Units


@dataclass(frozen=True)
class LinearChain:
    """Exact for `nn.Sequential` of Flatten, Linear, ReLU and Tanh ending in logits under cross-entropy."""

    model: FlatModel
    layers: tuple[nn.Module, ...]
    first: int
    names: dict[int, str]

    @classmethod
    def of(cls, model: FlatModel, rank: int) -> "LinearChain | None":
        """Return the engine, or None where the closed form would not hold.

        Args:
            model: The model.
            rank: Number of dimensions of a batch of features; a Linear layer needs 2.
        """
        layers = tuple(leaves(model.module))
        # Exact types: a subclass, a parametrised weight or a hook may compute something else.
        plain = all(type(layer) in _KNOWN and not hooked(layer) for layer in model.module.modules())
        linear = [layer for layer in layers if type(layer) is nn.Linear]
        owned = [p for layer in linear for p in layer.parameters()]
        once = len({id(p) for p in owned}) == len(owned) == len(model.parameters)
        flat = rank == 2 or (bool(layers) and type(layers[0]) is nn.Flatten)
        if not (plain and once and flat and linear and layers[-1] is linear[-1]):
            return None
        names = {id(layer): name for name, layer in model.module.named_modules()}
        return cls(model, layers, layers.index(linear[0]), names)

    def clipped_sum(self, features: Tensor, labels: Tensor, clipping: Clipping, units: Units | None = None) -> Clipped:
        """Write the sum of clipped gradients to `model.grad`."""
        self.model.grad.zero_()
        if len(labels) == 0:
            return Clipped(self.model.grad, (), clipping.bound)
        with torch.no_grad():
            saved, slopes = self._forward(features)
            slopes.scatter_add_(1, labels[:, None], slopes.new_full((len(labels), 1), -1.0))
            if units is not None:
                slopes *= units.weights.to(slopes)[:, None]
            at = self._backward(saved, slopes)
            parts = [self._part(layer, a, b, units) for layer, a, b in at]
            norms = add_clipped(parts, clipping, layer_count(self.model))
        return Clipped(self.model.grad, (norms,), clipping.bound)

    def _part(self, layer: nn.Linear, a: Tensor, b: Tensor, units: Units | None) -> Outer:
        if units is not None:
            a, b = units.padded(a), units.padded(b)
        bias = None if layer.bias is None else gradient_of(layer.bias)
        return Outer(self.names[id(layer)], a, b, gradient_of(layer.weight), bias)

    # Both passes work in place on tensors they made: at a few thousand rows a fresh one costs more than its arithmetic.

    def _forward(self, x: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return what each layer's backward needs (a Linear's input, another's output), and the probabilities."""
        saved, ours = [], False
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                saved.append(x)
                x, ours = F.linear(x, layer.weight, layer.bias), True
            elif isinstance(layer, nn.Flatten):
                x = x.flatten(1)
                saved.append(x)
            else:
                x = x if ours else x.clone()
                x = x.relu_() if isinstance(layer, nn.ReLU) else x.tanh_()
                saved.append(x)
                ours = False  # its own backward needs it as it is
        # Many columns of a few entries go several times quicker than many rows of a few.
        return saved, F.softmax(x.T, dim=0).T.contiguous()

    def _backward(self, saved: list[Tensor], b: Tensor) -> list[tuple[nn.Linear, Tensor, Tensor]]:
        """Return every Linear with its inputs and the gradients at its outputs, last first."""
        at: list[tuple[nn.Linear, Tensor, Tensor]] = []
        for index in range(len(self.layers) - 1, self.first - 1, -1):
            layer, x = self.layers[index], saved[index]
            if isinstance(layer, nn.Linear):
                at.append((layer, x, b))
                if index > self.first:  # nobody needs the gradient of the inputs
                    b = b @ layer.weight
            elif isinstance(layer, nn.ReLU):
                torch.ops.aten.threshold_backward.grad_input(b, x, 0, grad_input=b)
            elif isinstance(layer, nn.Tanh):
                b.addcmul_(b * x, x, value=-1)
        return at


_KNOWN = {nn.Sequential, nn.Flatten, nn.Linear, nn.ReLU, nn.Tanh}
