"""How good a model is on rows it did not train on."""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (the name torch documents)

from consilia.learning.flat import FlatModel
from consilia.learning.gradient import rows_at_once


def evaluate(model: FlatModel, features: Tensor, labels: Tensor) -> tuple[int, float, int]:
    """Count correct answers.

    Args:
        model: The model.
        features: Shape (n, *input).
        labels: Shape (n,), int64.

    Returns:
        Number of correct rows, sum of their cross-entropy losses, and n. What may leave the site of these is
        the plan's decision.
    """
    model.set_mode(training=False)
    correct, loss = 0, 0.0
    chunk = rows_at_once(features)
    with torch.inference_mode():
        for x, y in zip(torch.split(features, chunk), torch.split(labels, chunk), strict=True):
            if len(y) == 0:
                continue
            logits = model.module(x)
            correct += int((logits.argmax(1) == y).sum())
            loss += float(F.cross_entropy(logits, y, reduction="sum"))
    return correct, loss, len(labels)
