"""A private step costs about a plain one. The bounds are wide, for busy machines; `benchmarks/SPEED.md` has the figures."""

import time
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from consilia.core.randomness import SecretRng
from consilia.learning.flat import FlatModel
from consilia.learning.models import build
from consilia.learning.private import private_gradient
from consilia.learning.work import LocalWork


def cpu_seconds(step: Callable[[], object], times: int) -> float:
    started = time.process_time()
    for _ in range(times):
        step()
    return time.process_time() - started


@pytest.mark.parametrize(
    ("name", "shape", "times"), [("mlp", (22,), 40), ("mnist-cnn", (1, 28, 28), 1), ("nodule-cnn", (1, 32, 32), 1)]
)
def test_a_private_step_costs_less_than_two_plain_ones(name: str, shape: tuple[int, ...], times: int) -> None:
    """Writing every gradient out and going back twice, as is usual, costs two to seven plain steps here."""
    features, labels = torch.randn(64, *shape), torch.zeros(64, dtype=torch.int64)
    module = build(name, input_shape=shape, classes=2, hidden=(64,), seed=1)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    private = private_gradient(
        FlatModel(build(name, input_shape=shape, classes=2, hidden=(64,), seed=1)),
        LocalWork(clip_norm=1.0, noise_multiplier=1.0, expected_batch=64.0), features.dim(), SecretRng(bytes(32)),
    )  # fmt: skip

    def plain() -> None:
        optimizer.zero_grad()
        F.cross_entropy(module(features), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def clipped() -> None:
        private(features, labels)

    for step in (plain, clipped, plain, clipped):
        step()  # what is made once
    ratios = [cpu_seconds(clipped, times) / cpu_seconds(plain, times) for _ in range(9)]
    assert float(np.median(ratios)) < 2.0
