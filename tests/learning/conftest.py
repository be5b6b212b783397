"""What the tests of `learning` share: a slow oracle, and a way to run a round without a caller's batches."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

Oracle = Callable[[nn.Module, Tensor, Tensor, float], Tensor]


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _one_at_a_time(module: nn.Module, features: Tensor, labels: Tensor, clip_norm: float) -> Tensor:
    parameters = [p for p in module.parameters() if p.requires_grad]
    total = torch.zeros(sum(p.numel() for p in parameters), dtype=torch.float64)
    for row in range(len(labels)):
        loss = F.cross_entropy(module(features[row : row + 1]), labels[row : row + 1])
        flat = torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]).double()
        if torch.isfinite(flat).all():
            total += flat * min(1.0, clip_norm / max(float(flat.norm()), 1e-300))
    return total


@pytest.fixture(scope="session")
def slow_clipped_sum() -> Oracle:
    """One example at a time, in the order of `module.parameters()`; a gradient that is not finite counts as zero."""
    return _one_at_a_time


def _no_batch() -> NDArray[np.int64]:
    raise AssertionError("a full batch asks nobody")


@pytest.fixture(scope="session")
def no_batch() -> Callable[[], NDArray[np.int64]]:
    return _no_batch
