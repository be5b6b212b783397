"""The slow way to clip units: one row at a time through autograd, means, norms and factors written out."""

from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from consilia.learning.persample.clipping import Clipping
from consilia.learning.persample.units import Units

GAMMA = 0.01


def slow_sum(
    module: nn.Module, features: Tensor, labels: Tensor, clipping: Clipping, units: Units | None
) -> tuple[Tensor, int]:
    """Return the sum of clipped unit gradients and how many units are finite and within the bound."""
    named = dict(module.named_parameters())
    trained = {name: p for name, p in named.items() if p.requires_grad}
    layers = sorted({name.rpartition(".")[0] for name in trained})
    of = torch.arange(len(labels)) if units is None else units.of
    total, within = torch.zeros(sum(p.numel() for p in trained.values()), dtype=torch.float64), 0
    for unit in torch.unique(of):
        rows = (of == unit).nonzero()[:, 0]
        each = []
        for row in rows:
            loss = F.cross_entropy(module(features[row : row + 1]), labels[row : row + 1])
            each.append(torch.autograd.grad(loss, list(trained.values()), materialize_grads=True))
        mean = {name: torch.stack(g).mean(0).double() for name, g in zip(trained, zip(*each, strict=True), strict=True)}
        norm = float(torch.cat([g.flatten() for g in mean.values()]).norm())
        if norm != norm or norm == float("inf"):
            continue
        within += norm <= clipping.bound
        for layer in layers:
            names = [name for name in trained if name.rpartition(".")[0] == layer]
            own = float(torch.cat([mean[name].flatten() for name in names]).norm())
            factor = {
                "flat": min(1.0, clipping.bound / max(norm, 1e-300)),
                "per-layer": min(1.0, clipping.bound / sqrt(len(layers)) / max(own, 1e-300)),
                "automatic": clipping.bound / (norm + GAMMA),
            }[clipping.kind]
            for name in names:
                mean[name] *= factor
        total += torch.cat([g.flatten() for g in mean.values()])
    return total, within
