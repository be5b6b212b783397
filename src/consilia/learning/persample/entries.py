"""From what a pass wrote down to each trainable tensor's part: several uses of one tensor are one gradient."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from consilia.learning.flat import FlatModel
from consilia.learning.persample.chain import gradient_of
from consilia.learning.persample.clipping import Part
from consilia.learning.persample.engine import owner
from consilia.learning.persample.parts import Formed, LookedUp, of_linear
from consilia.learning.persample.tracked import Tracked


@dataclass(frozen=True)
class Each:
    """Every unit's gradient, shape (units, *weight.shape)."""

    weight: Tracked
    g: Tensor

    @property
    def touched(self) -> tuple[Tracked, ...]:
        """The tensors."""
        return (self.weight,)

    def written_out(self) -> "list[Each]":
        """Return itself."""
        return [self]


@dataclass(frozen=True)
class Pairs:
    """A matrix between inputs a, (units, positions, in), and outputs of slopes b, (units, positions, out)."""

    weight: Tracked | None
    bias: Tracked | None
    a: Tensor
    b: Tensor

    @property
    def touched(self) -> tuple[Tracked, ...]:
        """The tensors."""
        return tuple(t for t in (self.weight, self.bias) if t is not None)

    def written_out(self) -> list[Each]:
        """Return gradients."""
        found = []
        if self.weight is not None:
            found.append(Each(self.weight, torch.bmm(self.b.mT, self.a).view(len(self.a), *self.weight.live.shape)))
        if self.bias is not None:
            found.append(Each(self.bias, self.b.sum(1)))
        return found


@dataclass(frozen=True)
class Lookup:
    """Rows of a matrix, numbers `ids` (units, positions), copied to outputs of slopes b, (units, positions, width)."""

    weight: Tracked
    ids: Tensor
    b: Tensor

    @property
    def touched(self) -> tuple[Tracked, ...]:
        """The tensors."""
        return (self.weight,)

    def written_out(self) -> list[Each]:
        """Return gradients."""
        units, positions, width = self.b.shape
        rows = self.weight.live.shape[0]
        at = self.ids + rows * torch.arange(units, device=self.ids.device)[:, None]
        g = self.b.new_zeros(units * rows, width).index_add_(0, at.flatten(), self.b.reshape(units * positions, width))
        return [Each(self.weight, g.view(units, rows, width))]


Entry = Each | Pairs | Lookup


def parts_of(model: FlatModel, entries: Sequence[Entry], leaves: Sequence[Tracked]) -> list[Part]:
    """Return every trainable tensor's part, each tensor in one part only.

    Args:
        model: Where the sums go.
        entries: What a pass wrote down.
        leaves: The stand-ins of the trainable tensors.
    """
    entries = [e for entry in entries for e in _on_leaves(entry, leaves)]
    kinds: dict[str, set[Any]] = defaultdict(set)
    for entry in entries:
        kind = (type(entry), *(t.label for t in entry.touched)) if not isinstance(entry, Each) else Each
        for t in entry.touched:
            kinds[_name(t)].add(kind)
    alone: dict[tuple[str, ...], list[Any]] = defaultdict(list)
    sums: dict[str, Tensor] = {}
    for entry in entries:
        if not isinstance(entry, Each) and all(len(kinds[_name(t)]) == 1 for t in entry.touched):
            alone[tuple(_name(t) for t in entry.touched)].append(entry)
            continue
        for each in entry.written_out():
            name = _name(each.weight)
            sums[name] = sums[name] + each.g if name in sums else each.g
    found: list[Part] = [part for same in alone.values() for part in _joined(model, same)]
    found += [Formed(owner(name), gradient_of(model.parameters[name]), g) for name, g in sums.items()]
    return found


def _joined(model: FlatModel, same: Sequence[Any]) -> Sequence[Part]:
    """Return the part of several uses of the same tensors: their positions stand side by side."""
    first = same[0]
    b = first.b if len(same) == 1 else torch.cat([entry.b for entry in same], 1)
    name = _name(first.touched[0])
    if isinstance(first, Lookup):
        ids = first.ids if len(same) == 1 else torch.cat([entry.ids for entry in same], 1)
        return [LookedUp(owner(name), gradient_of(model.parameters[name]), ids, b)]
    a = first.a if len(same) == 1 else torch.cat([entry.a for entry in same], 1)
    weight, bias = (None if t is None else gradient_of(model.parameters[_name(t)]) for t in (first.weight, first.bias))
    return of_linear(owner(name), a, b, None if weight is None else weight.view(b.shape[2], a.shape[2]), bias)


def _on_leaves(entry: Entry, leaves: Sequence[Tracked]) -> list[Entry]:
    """Return the entry as it concerns trainable tensors: what a module computes from them has their gradients."""
    if all(t.label is not None for t in entry.touched):
        return [entry]
    found: list[Entry] = []
    for each in entry.written_out():
        if each.weight.label is not None:
            found.append(each)
            continue
        sources = [leaf.live for leaf in leaves]
        gradients = torch.autograd.grad(
            each.weight.live, sources, each.g, retain_graph=True, allow_unused=True, is_grads_batched=True
        )
        found += [Each(leaf, g) for leaf, g in zip(leaves, gradients, strict=True) if g is not None]
    return found


def _name(tracked: Tracked) -> str:
    return tracked.label or ""
