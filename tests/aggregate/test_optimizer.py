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


def last_step(optimizer: ServerOptimizer, truth: float, deviation: float, rounds: int) -> float:
    """Return the mean step of the last round over coordinates that share a true update."""
    rng, model, before = np.random.default_rng(0), np.zeros(2000, np.float32), np.zeros(2000, np.float32)
    state = optimizer.init(2000)
    for _ in range(rounds):
        before, (model, state) = model, optimizer.step(model, truth + deviation * rng.standard_normal(2000), state)
    return float((model - before).mean())


@pytest.mark.parametrize("sign", [1, -1])
def test_dp_adam_gives_a_small_update_its_step_where_adam_does_not(sign: int) -> None:
    adam, corrected = ServerOptimizer("adam", 1.0), ServerOptimizer("dp-adam", 1.0, noise_variance=0.25)
    truth = 0.25 * sign  # half the noise
    assert abs(last_step(adam, truth, 0.5, 300)) < 0.5
    assert last_step(corrected, truth, 0.5, 300) == pytest.approx(sign, abs=0.15)


def test_dp_adam_follows_noise_that_changes_between_rounds() -> None:
    rng, model = np.random.default_rng(0), np.zeros(2000, np.float32)
    state = ServerOptimizer("dp-adam", 1.0).init(2000)
    for deviation in [2.0] * 100 + [0.2] * 40:
        optimizer, before = ServerOptimizer("dp-adam", 1.0, noise_variance=deviation**2), model
        model, state = optimizer.step(model, 1.0 + deviation * rng.standard_normal(2000), state)
    assert float((model - before).mean()) == pytest.approx(1, abs=0.25)  # told nothing, it would divide by 1.9


def test_dp_adam_without_noise_is_adam_with_bias_correction() -> None:
    optimizer, model = ServerOptimizer("dp-adam", 0.1, tau=1e-6), np.zeros(2, np.float32)
    m = v = np.zeros(2)
    x, state = np.zeros(2), optimizer.init(2)
    for t in range(1, 6):
        u = np.array([1.0, -1e-2]) * t
        m, v = 0.9 * m + 0.1 * u, 0.99 * v + 0.01 * u * u
        x = x + 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.99**t)) + 1e-6)
        model, state = optimizer.step(model, u, state)
    np.testing.assert_allclose(model, x, rtol=1e-5)


def test_weighted_mean_with_and_without_a_fixed_denominator() -> None:
    for denominator, expected in ((None, 2.5), (8.0, 1.25)):
        rule = WeightedMean(denominator)
        total = rule.zero(1)
        rule.add(total, np.array([4], np.float32), 1.0)
        rule.add(total, np.array([2], np.float32), 3.0)
        assert rule.finish(total, total.total)[0] == pytest.approx(expected)
    empty = WeightedMean()
    assert empty.finish(empty.zero(2), np.zeros(2)).tolist() == [0, 0]
