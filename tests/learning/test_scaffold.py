"""SCAFFOLD against drift, on two sites whose losses are quadratics of different optima and curvature."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from consilia.core.errors import PlanError
from consilia.core.randomness import SecretRng, SharedSeed
from consilia.learning.flat import FlatModel
from consilia.learning.local import train
from consilia.learning.work import LocalWork

SECRET = SecretRng.reproducible_from(SharedSeed.of(0))


class Quadratic(nn.Module):
    """Logits whose cross-entropy for class 0 is h/2 (w - b)^2 + 1, where a row holds (h, b)."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        value = x[:, 0] / 2 * (self.w - x[:, 1]) ** 2 + 1
        return torch.stack([torch.zeros_like(value), value + torch.log(-torch.expm1(-value))], dim=1)


SITES = [torch.tensor([[1.0, 0.0]], dtype=torch.float64), torch.tensor([[4.0, 10.0]], dtype=torch.float64)]
LABEL = torch.zeros(1, dtype=torch.int64)
JOINT = (1 * 0 + 4 * 10) / (1 + 4)


def federate(work: LocalWork, *, scaffold: bool, rounds: int) -> float:
    model = FlatModel(Quadratic())
    x, c = model.get(), np.zeros(1, np.float32)
    kept = [np.zeros(1, np.float32) for _ in SITES]
    for _ in range(rounds):
        results = [
            train(
                model, x, rows, LABEL, work, secret=SECRET, public=SharedSeed.of(0),
                next_batch=lambda: np.zeros(1, np.int64), control=(c, kept[i]) if scaffold else None,
            )
            for i, rows in enumerate(SITES)
        ]  # fmt: skip
        x = (x + np.mean([r.delta for r in results], axis=0)).astype(np.float32)
        for i, result in enumerate(results):
            if result.control_delta is not None:
                kept[i] = kept[i] + result.control_delta
                c = (c + result.control_delta / len(SITES)).astype(np.float32)
    return float(x[0])


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_scaffold_reaches_the_joint_optimum_where_fedavg_does_not(momentum: float) -> None:
    work = LocalWork(steps=10, learning_rate=0.05, momentum=momentum)
    assert federate(work, scaffold=True, rounds=150) == pytest.approx(JOINT, abs=1e-3)
    assert abs(federate(work, scaffold=False, rounds=150) - JOINT) > 0.5


def test_fedavg_stops_where_the_closed_form_says() -> None:
    moved = [1 - (1 - 0.1 * h) ** 10 for h in (1.0, 4.0)]
    expected = 10 * moved[1] / sum(moved)
    work = LocalWork(steps=10, learning_rate=0.1)
    assert federate(work, scaffold=False, rounds=100) == pytest.approx(expected, abs=1e-4)


def test_new_control_variate_is_the_mean_of_the_sites_gradients() -> None:
    model = FlatModel(Quadratic())
    start, c, c_i = np.array([2.0], np.float32), np.array([0.3], np.float32), np.array([-0.1], np.float32)
    work = LocalWork(steps=5, learning_rate=0.02)
    y, gradients = 2.0, []
    for _ in range(5):
        gradients.append(4 * (y - 10))
        y -= 0.02 * (gradients[-1] - -0.1 + 0.3)
    result = train(model, start, SITES[1], LABEL, work, secret=SECRET, public=SharedSeed.of(0),
                   next_batch=lambda: np.zeros(1, np.int64), control=(c, c_i))  # fmt: skip
    assert result.control_delta is not None
    assert result.delta[0] == pytest.approx(y - 2.0, rel=1e-5)
    assert -0.1 + result.control_delta[0] == pytest.approx(np.mean(gradients), rel=1e-5)


@pytest.mark.parametrize("work", [LocalWork(optimizer="adam"), LocalWork(algorithm="fedsgd")])
def test_scaffold_needs_local_sgd(work: LocalWork) -> None:
    zero = np.zeros(1, np.float32)
    with pytest.raises(PlanError, match="local sgd"):
        train(
            FlatModel(Quadratic()), zero, SITES[0], LABEL, work, secret=SECRET,
            public=SharedSeed.of(0), next_batch=lambda: np.zeros(1, np.int64), control=(zero, zero),
        )  # fmt: skip


def test_running_statistics_have_no_control_variate() -> None:
    model = FlatModel(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)))
    zero = np.zeros(model.dim, np.float32)
    result = train(
        model, model.get(), torch.randn(8, 2), torch.zeros(8, dtype=torch.int64), LocalWork(), secret=SECRET,
        public=SharedSeed.of(0), next_batch=lambda: np.arange(8), control=(zero, zero),
    )  # fmt: skip
    assert result.control_delta is not None
    assert result.delta[-6:].any()
    assert not result.control_delta[-6:].any()
