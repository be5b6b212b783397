"""Any other model: every example's gradient is formed, a few examples at a time."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F  # noqa: N812  (the name torch documents)

from consilia.learning.flat import FlatModel
from consilia.learning.persample.chain import gradient_of
from consilia.learning.persample.clipping import Clipping, add_clipped
from consilia.learning.persample.engine import Clipped, layer_count, owner
from consilia.learning.persample.parts import Formed
from consilia.learning.persample.units import Units, split

_ELEMENTS_AT_ONCE = 1 << 23  # gradient coordinates held at a time: 32 MiB in float32


@dataclass(frozen=True)
class Fallback:
    """Exact for every module that `probe` finds nothing in: each example goes through it alone."""

    model: FlatModel
    places: dict[str, str]

    @classmethod
    def of(cls, model: FlatModel) -> "Fallback":
        """Return the engine; a parameter that several layers share is found at each of them."""
        names = {id(parameter): name for name, parameter in model.parameters.items()}
        places = {
            f"{owner}.{leaf}" if owner else leaf: names[id(parameter)]
            for owner, layer in model.module.named_modules()
            for leaf, parameter in layer._parameters.items()
            if id(parameter) in names
        }
        return cls(model, places)

    def clipped_sum(self, features: Tensor, labels: Tensor, clipping: Clipping, units: Units | None = None) -> Clipped:
        """Write the sum of clipped gradients to `model.grad`."""
        self.model.grad.zero_()
        values = {name: p.detach() for name, p in self.model.parameters.items()}
        chunk = max(1, _ELEMENTS_AT_ONCE // len(self.model.grad))
        each = vmap(grad(self._loss), in_dims=(None, 0, 0), randomness="different")
        norms = []
        for rows, some in split(len(labels), units, chunk):
            x, y = features[rows], labels[rows]
            try:
                found = each(values, x, y)
            except RuntimeError:  # torch.func cannot batch recurrent layers, nor branches on values
                found = self._one_at_a_time(x, y)
            parts = [
                Formed(owner(name), gradient_of(self.model.parameters[name]), _means(g, some))
                for name, g in found.items()
            ]
            norms.append(add_clipped(parts, clipping, layer_count(self.model)))
        return Clipped(self.model.grad, norms, clipping.bound)

    def _one_at_a_time(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        parameters = list(self.model.parameters.values())
        rows = [
            torch.autograd.grad(
                F.cross_entropy(self.model.module(x[None]), y[None]), parameters, materialize_grads=True
            )
            for x, y in zip(features, labels, strict=True)
        ]
        return dict(zip(self.model.parameters, map(torch.stack, zip(*rows, strict=True)), strict=True))

    def _loss(self, values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        # torch's own tie_weights leaves a layer that stands at two places with a dead tensor: name each place once.
        placed = {place: values[name] for place, name in self.places.items()}
        logits = functional_call(self.model.module, placed, (x[None],), tie_weights=False)
        return F.cross_entropy(logits, y[None])


def _means(g: Tensor, units: Units | None) -> Tensor:
    return g if units is None else units.summed((g.flatten(1) * units.weights.to(g)[:, None]).view_as(g))
