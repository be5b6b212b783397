"""What makes a module a plain chain of layers; where its gradients go; norms of rows."""

import torch
from torch import Tensor, nn


def leaves(module: nn.Module) -> list[nn.Module]:
    """Return the layers of nested `nn.Sequential`s in the order they run."""
    if type(module) is nn.Sequential:
        return [leaf for child in module for leaf in leaves(child)]
    return [module]


def hooked(layer: nn.Module) -> bool:
    """Return True if a hook may change what the layer computes."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks)


def row_squares(x: Tensor) -> Tensor:
    """Return the squared l2 norm of each row of a matrix, shape (rows,)."""
    squares: Tensor = torch.linalg.vector_norm(x, dim=1).square_()
    return squares


def gradient_of(parameter: Tensor) -> Tensor:
    """Return a parameter's view into the flat gradient.

    Raises:
        RuntimeError: If the module's own code removed it: its sum would be lost silently.
    """
    if parameter.grad is None:
        raise RuntimeError("a FlatModel's parameters hold views of one gradient; the module removed one")
    return parameter.grad
