"""The mean gradient of a batch, without privacy."""

from math import prod

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (the name torch documents)

from consilia.learning.flat import FlatModel

_ELEMENTS_AT_ONCE = 1 << 22  # inputs a pass: the memory of a pass over all rows stays bounded whatever a site holds


def rows_at_once(features: Tensor) -> int:
    """Return how many rows go through the model in one pass."""
    return max(1, _ELEMENTS_AT_ONCE // max(1, prod(features.shape[1:])))


def mean_gradient(model: FlatModel, features: Tensor, labels: Tensor) -> Tensor | None:
    """Write the gradient of the mean cross-entropy to `model.grad`.

    Args:
        model: The model, in training mode.
        features: Shape (b, *input); b may be 0.
        labels: Shape (b,), int64.

    Returns:
        The mean loss, a scalar tensor; None for an empty batch, whose gradient is zero.
    """
    model.grad.zero_()
    count = len(labels)
    if count == 0 or (count == 1 and model.batch_statistics):
        return None  # one row has no variance to normalise by
    chunk = rows_at_once(features)
    if count <= chunk:
        loss: Tensor = F.cross_entropy(model.module(features), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()
    total = model.grad.new_zeros(())
    for x, y in zip(torch.split(features, chunk), torch.split(labels, chunk), strict=True):
        loss = F.cross_entropy(model.module(x), y, reduction="sum") / count
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
    return total
