"""Stand-ins for a model's trainable tensors that tell a book of every use, wherever in the module it happens."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._pytree import tree_iter, tree_map

Call = Callable[..., Any]


class Untraceable(Exception):  # noqa: N818  (no fault of anybody: the slow way is taken)
    """A trainable tensor is used in a way that no fast path covers."""


class Witness(Protocol):
    """Whoever is told of uses."""

    constants: frozenset[int]

    def used(self, call: Call, args: Sequence[Any], more: dict[str, Any]) -> Any:
        """Carry out a function that a stand-in and data meet in."""
        ...


class Tracked(Tensor):
    """Stands for a trainable tensor, or for what a module computes from such tensors alone (a standardised weight).

    Attributes:
        live: The value, with torch's own graph back to the trainable tensors.
        witness: Who is told.
        label: Name of the trainable tensor; None for what is computed from some.
    """

    live: Tensor
    witness: Witness
    label: str | None

    @staticmethod
    def of(live: Tensor, witness: Witness, label: str | None = None) -> "Tracked":
        """Return a stand-in for a value that needs gradients."""
        made: Tracked = Tensor._make_subclass(Tracked, live.detach(), False)
        made.live, made.witness, made.label = live, witness, label
        return made

    @classmethod
    def __torch_function__(cls, func: Call, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Tell the witness where data come in; compute on where trainable tensors are among themselves.

        Raises:
            Untraceable: If a trainable tensor would be changed in place.
        """
        more = kwargs or {}
        tensors = [leaf for leaf in tree_iter((args, more)) if isinstance(leaf, Tensor)]
        witness = next(leaf.witness for leaf in tensors if isinstance(leaf, Tracked))
        if not torch.is_grad_enabled():
            return func(*values(args), **values(more))
        if any(not isinstance(leaf, Tracked) and id(leaf) not in witness.constants for leaf in tensors):
            return witness.used(func, args, more)
        name = getattr(func, "__name__", "")
        if name.endswith("_") and not name.startswith("_"):
            raise Untraceable(f"{name} changes a trainable tensor")
        found = func(*_live(args), **_live(more))
        return tree_map(
            lambda leaf: Tracked.of(leaf, witness) if isinstance(leaf, Tensor) and leaf.requires_grad else leaf, found
        )


def values(tree: Any) -> Any:
    """Return the same nest of arguments with plain tensors, cut off from any graph, in the place of stand-ins."""
    return tree_map(lambda leaf: leaf.live.detach() if isinstance(leaf, Tracked) else leaf, tree)


def _live(tree: Any) -> Any:
    return tree_map(lambda leaf: leaf.live if isinstance(leaf, Tracked) else leaf, tree)
