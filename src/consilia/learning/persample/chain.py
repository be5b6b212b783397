"""What makes a module a plain chain of layers; where its gradients go; norms of rows."""

import torch
from torch import Tensor, nn

_COLUMNS_AT_ONCE = 4096  # torch adds squares up in one go: a million in float32 are off by 1e-5 and more


def leaves(module: nn.Module) -> list[nn.Module]:
    """Return the layers of nested `nn.Sequential`s in the order they run."""
    if type(module) is nn.Sequential:
        return [leaf for child in module for leaf in leaves(child)]
    return [module]


def hooked(layer: nn.Module) -> bool:
    """Return True if a hook may change what the layer computes."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks)


def row_norms(x: Tensor) -> Tensor:
    """Return the l2 norm of each row of a matrix, shape (rows,), to a few units of the last place."""
    if x.shape[1] <= _COLUMNS_AT_ONCE:
        norms: Tensor = torch.linalg.vector_norm(x, dim=1)
        return norms
    parts = [torch.linalg.vector_norm(part, dim=1) for part in torch.split(x, _COLUMNS_AT_ONCE, dim=1)]
    norms = torch.linalg.vector_norm(torch.stack(parts), dim=0)
    return norms


def row_squares(x: Tensor) -> Tensor:
    """Return the squared l2 norm of each row of a matrix, shape (rows,)."""
    return row_norms(x).square_()


def gradient_of(parameter: Tensor) -> Tensor:
    """Return a parameter's view into the flat gradient.

    Raises:
        RuntimeError: If the module's own code removed it: its sum would be lost silently.
    """
    if parameter.grad is None:
        raise RuntimeError("a FlatModel's parameters hold views of one gradient; the module removed one")
    return parameter.grad
