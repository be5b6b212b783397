"""How far a unit's gradient may move a sum: one place, whatever engine formed the gradients."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Literal, Protocol

import torch
from torch import Tensor

Kind = Literal["flat", "per-layer", "automatic"]

_STEADY = 0.01  # gamma: below this norm automatic clipping stops blowing gradients up


@dataclass(frozen=True)
class Clipping:
    """The bound on one unit's share of a sum.

    Attributes:
        kind: flat scales g by min(1, C / |g|); per-layer does so for each of L layers with C / sqrt(L); automatic scales
            every g to C |g| / (|g| + gamma).
        bound: C, l2, over all trainable tensors together.

    Guarantees:
        Under each kind a unit adds a vector of l2 norm at most C: per-layer, sqrt(L (C / sqrt(L))^2) = C.

    Source:
        Abadi et al. (2016), Deep learning with differential privacy, algorithm 1; McMahan et al. (2018), A general approach to
        adding differential privacy to iterative training procedures, section 2.3 (per-layer); Bu et al. (2023), Automatic
        clipping, algorithm 1 (gamma = 0.01).
    """

    kind: Kind
    bound: float


class Part(Protocol):
    """One layer's share of the gradients of a few units."""

    @property
    def layer(self) -> str:
        """Name of the module that owns the parameters: parts of one layer are clipped together."""
        ...

    def squares(self) -> Tensor:
        """Return the squared l2 norm of each unit's share, shape (units,)."""
        ...

    def add(self, factors: Tensor, fit: Tensor | None) -> None:
        """Add the sum of factors times shares to the parameters' gradients.

        Args:
            factors: Shape (units that are fit,).
            fit: Which units are finite, shape (units,); None: all.
        """
        ...


def clip_factors(norms: Tensor, clip_norm: float) -> Tensor:
    """Return min(1, C / norm) per example, shape (b,); a norm of zero gives 1.

    Eight units of the last place below the bound absorb the rounding of the norm and of the product (2^-20 in float32).
    """
    return (_below(clip_norm, norms) / norms).clamp_(max=1.0)


def add_clipped(parts: Sequence[Part], clipping: Clipping, layers: int) -> Tensor:
    """Clip every unit, add the sum to the parameters' gradients and return the finite norms before clipping.

    Args:
        parts: Every layer's shares of the same units.
        clipping: The bound.
        layers: L, how many layers the model has, those included that no row reached.

    Guarantees:
        A unit adds at most C, as `Clipping` says; one whose gradient is not finite adds nothing.
    """
    squares = [part.squares() for part in parts]
    norms = sum(squares[1:], start=squares[0]).sqrt()
    fit = None
    if not isfinite(float(norms.sum())):  # one test in the usual case; zero times NaN would be NaN
        fit = torch.isfinite(norms)
        norms, squares = norms[fit], [one[fit] for one in squares]
    if clipping.kind == "flat":
        factors = [clip_factors(norms, clipping.bound)] * len(parts)
    elif clipping.kind == "automatic":
        factors = [_below(clipping.bound, norms) / (norms + _STEADY)] * len(parts)
    else:
        factors = _per_layer(parts, squares, clipping.bound / sqrt(layers))
    for part, one in zip(parts, factors, strict=True):
        part.add(one, fit)
    return norms


def _per_layer(parts: Sequence[Part], squares: Sequence[Tensor], bound: float) -> list[Tensor]:
    whole: dict[str, Tensor] = {}
    for part, one in zip(parts, squares, strict=True):
        whole[part.layer] = whole[part.layer] + one if part.layer in whole else one
    factors = {layer: clip_factors(one.sqrt(), bound) for layer, one in whole.items()}
    return [factors[part.layer] for part in parts]


def _below(bound: float, like: Tensor) -> float:
    return bound * (1.0 - 8.0 * torch.finfo(like.dtype).eps)
