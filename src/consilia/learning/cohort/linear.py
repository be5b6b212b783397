"""Chains of Linear layers, a batch of matrices at a time: one product serves a layer of all sites.

The passes are those of `persample.linear`, with a site's index in front.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (the name torch documents)

from consilia.learning.cohort.rows import Batch
from consilia.learning.cohort.stack import Stack
from consilia.learning.flat import FlatModel
from consilia.learning.persample.chain import leaves, row_squares
from consilia.learning.persample.clipping import clip_factors


@dataclass(frozen=True)
class Linear:
    """A Linear layer's copies.

    Attributes:
        weight: Shape (S, out, in).
        weight_grad: Where the gradient goes, shaped as `weight`.
        bias: Shape (S, out), or None.
        bias_grad: Shaped as `bias`.
    """

    weight: Tensor
    weight_grad: Tensor
    bias: Tensor | None
    bias_grad: Tensor | None


class StackedChain:
    """Gradients of S sites' chains: `nn.Sequential` of Flatten, Linear, ReLU and Tanh ending in logits."""

    def __init__(self, model: FlatModel, stack: Stack) -> None:
        names = {id(parameter): name for name, parameter in model.parameters.items()}
        self._layers: list[Linear | type[nn.Module]] = []
        for layer in leaves(model.module):
            if isinstance(layer, nn.Linear):
                weight, bias = names[id(layer.weight)], names.get(id(layer.bias))
                stacked = (stack.values[bias], stack.gradients[bias]) if bias else (None, None)
                self._layers.append(Linear(stack.values[weight], stack.gradients[weight], *stacked))
            elif not isinstance(layer, nn.Flatten):  # the rows come flat
                self._layers.append(type(layer))
        linear = [(place, layer) for place, layer in enumerate(self._layers) if isinstance(layer, Linear)]
        self._first, self._last = linear[0][0], linear[-1][1]

    def mean_gradients(self, batch: Batch) -> Tensor:
        """Write each site's gradient of its mean cross-entropy; zero where a site has no row.

        Returns:
            Each site's mean loss, shape (s,); of no meaning where it has no row.
        """
        with torch.no_grad():
            inputs, logits = self._forward(batch.features)
            logs = F.log_softmax(logits, dim=1)
            share = torch.from_numpy(1.0 / batch.counts.clip(min=1)).to(logs)[:, None]
            each = logs.gather(1, batch.labels[:, None]).squeeze(1)
            if batch.padding is not None:
                each = each.masked_fill_(batch.padding, 0.0)
            losses = -(each * share).sum(1)
            slopes = _slopes(logs.exp_(), batch).mul_(share[:, :, None])
            for layer, a, b in self._backward(inputs, slopes):
                _write(layer, a, b)
        return losses

    def clipped_sums(self, batch: Batch, clip_norm: float) -> None:
        """Write each site's sum of clipped gradients.

        Guarantees:
            As `persample.engine.PerExample`, for each site: its sum reads no row of another.
        """
        with torch.no_grad():
            inputs, logits = self._forward(batch.features)
            at = self._backward(inputs, _slopes(F.softmax(logits, dim=1), batch))
            squares = [_squares(b) * (_squares(a) + (layer.bias is not None)) for layer, a, b in at]
            norms = sum(squares[1:], start=squares[0]).sqrt_()
            factors = clip_factors(norms, clip_norm)
            fit = None
            if not torch.isfinite(norms.sum()):  # one test in the usual case; zero times NaN would be NaN
                fit = torch.isfinite(norms)
                factors = torch.where(fit, factors, 0)
            if batch.padding is not None:
                factors = factors.masked_fill_(batch.padding, 0.0)
            for layer, a, b in at:
                a, b = (a, b) if fit is None else (_where(fit, a), _where(fit, b))
                _write(layer, a, b * factors[:, :, None])

    # A layer's outputs lie row by row, (s, b, out), but the logits class by class, (s, classes, b): a softmax over a handful
    # of neighbours is ten times slower than one over a handful of long rows.

    def _forward(self, x: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return each layer's input if it is Linear, else its output; and the logits."""
        saved, sites, ours = [], len(x), False
        for layer in self._layers[:-1]:
            if isinstance(layer, Linear):
                saved.append(x)
                w = layer.weight[:sites].transpose(1, 2)
                x = torch.bmm(x, w) if layer.bias is None else torch.baddbmm(layer.bias[:sites, None], x, w)
                ours = True
            else:
                x = x if ours else x.clone()
                x = x.relu_() if layer is nn.ReLU else x.tanh_()
                saved.append(x)
                ours = False
        w, bias, columns = self._last.weight[:sites], self._last.bias, x.transpose(1, 2)
        logits = torch.bmm(w, columns) if bias is None else torch.baddbmm(bias[:sites, :, None], w, columns)
        return [*saved, x], logits

    def _backward(self, saved: list[Tensor], slopes: Tensor) -> list[tuple[Linear, Tensor, Tensor]]:
        """Return every Linear with its inputs and the gradients at its outputs, last first."""
        at: list[tuple[Linear, Tensor, Tensor]] = []
        b = slopes.transpose(1, 2)
        for index in range(len(self._layers) - 1, self._first - 1, -1):
            layer, x = self._layers[index], saved[index]
            if isinstance(layer, Linear):
                at.append((layer, x, b))
                if index > self._first:
                    b = torch.bmm(b, layer.weight[: len(b)])
            elif layer is nn.ReLU:
                b = torch.ops.aten.threshold_backward(b, x, 0)  # many times faster than a product with x > 0
            else:
                b = torch.addcmul(b, b * x, x, value=-1)
        return at


def _slopes(probabilities: Tensor, batch: Batch) -> Tensor:
    """Return the gradient of each row's loss at its logits, (s, classes, b), zero for padding; in place."""
    sites, _, rows = probabilities.shape
    slopes = probabilities.scatter_add_(1, batch.labels[:, None], probabilities.new_full((sites, 1, rows), -1.0))
    return slopes if batch.padding is None else slopes.masked_fill_(batch.padding[:, None], 0.0)


def _write(layer: Linear, a: Tensor, b: Tensor) -> None:
    sites = len(a)
    torch.bmm(b.transpose(1, 2), a, out=layer.weight_grad[:sites])
    if layer.bias_grad is not None:
        torch.sum(b, 1, out=layer.bias_grad[:sites])


def _squares(x: Tensor) -> Tensor:
    return row_squares(x.flatten(0, 1)).view(x.shape[:2])


def _where(fit: Tensor, x: Tensor) -> Tensor:
    return torch.where(fit[:, :, None], x, 0)
