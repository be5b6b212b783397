"""Server optimizers against their formulas, written plainly."""

import numpy as np
import pytest

from consilia.aggregate.optimizer import ServerOptimizer
from consilia.aggregate.rule import WeightedMean


def plain(kind: str, updates: list[float], rate: float, b1: float, b2: float, tau: float) -> float:
    x, m, v = 0.0, 0.0, tau * tau
    for u in updates:
        if kind == "sgd":
            x += rate * u
        elif kind == "momentum":
            m = b1 * m + u
            x += rate * m
        else:
            m = u if kind == "adagrad" else b1 * m + (1 - b1) * u
            if kind == "adagrad":
                v += u * u
            elif kind == "adam":
                v = b2 * v + (1 - b2) * u * u
            else:
                v -= (1 - b2) * u * u * np.sign(v - u * u)
            x += rate * m / (np.sqrt(v) + tau)
    return x


@pytest.mark.parametrize("kind", ["sgd", "momentum", "adagrad", "adam", "yogi"])
def test_formula(kind: str) -> None:
    updates = [0.3, -0.1, 0.5, 0.02]
    optimizer = ServerOptimizer(kind, 0.1, 0.9, 0.99, 1e-2)  # type: ignore[arg-type]
    model, state = np.zeros(1, np.float32), optimizer.init(1)
    for u in updates:
        model, state = optimizer.step(model, np.array([u]), state)
    assert model[0] == pytest.approx(plain(kind, updates, 0.1, 0.9, 0.99, 1e-2), rel=1e-5)


def test_first_adam_step_is_not_bias_corrected() -> None:
    # With a wrong 1/(1 - beta) correction the first step would be ten times as large.
    optimizer = ServerOptimizer("adam", 1.0, 0.9, 0.99, 1e-3)
    model, _ = optimizer.step(np.zeros(1, np.float32), np.array([1.0]), optimizer.init(1))
    assert model[0] == pytest.approx(0.1 / (np.sqrt(0.99e-6 + 0.01) + 1e-3), rel=1e-5)


def test_weighted_mean_with_and_without_a_fixed_denominator() -> None:
    for denominator, expected in ((None, 2.5), (8.0, 1.25)):
        rule = WeightedMean(denominator)
        total = rule.zero(1)
        rule.add(total, np.array([4], np.float32), 1.0)
        rule.add(total, np.array([2], np.float32), 3.0)
        assert rule.finish(total, total.total)[0] == pytest.approx(expected)
    empty = WeightedMean()
    assert empty.finish(empty.zero(2), np.zeros(2)).tolist() == [0, 0]
