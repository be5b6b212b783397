"""The moving average of models against its formula."""

import numpy as np
import pytest

from consilia.aggregate.average import Ema


def run(decay: float, models: list[float]) -> float:
    average = None
    for t, x in enumerate(models):
        average = Ema(decay).update(average, np.array([x, -x], np.float32), t)
    assert average is not None
    assert average[1] == -average[0]
    return float(average[0])


def test_by_hand() -> None:
    # Weights of the past: 2/11 at t = 1, 3/12 at t = 2, and the decay where that is smaller.
    assert run(0.9, [4.0, 1.0, 2.0]) == pytest.approx(0.25 * (4 * 2 / 11 + 9 / 11) + 0.75 * 2)
    assert run(0.1, [4.0, 1.0, 2.0]) == pytest.approx(0.1 * (0.4 + 0.9) + 0.9 * 2)
    assert run(0.0, [4.0, 1.0]) == 1.0


def test_a_constant_model_is_its_own_average_and_the_start_is_forgotten_early() -> None:
    assert run(0.999, [3.0] * 50) == pytest.approx(3)
    assert run(0.9999, [1000.0] + [1.0] * 60) == pytest.approx(1, abs=1e-3)  # without the warm-up: 995


def test_the_noise_of_a_walk_around_a_point_is_averaged_away() -> None:
    rng = np.random.default_rng(0)
    model, average = np.zeros(500, np.float32), None
    for t in range(2000):
        model = (0.5 * model + rng.standard_normal(500)).astype(np.float32)
        average = Ema(0.99).update(average, model, t)
    assert average is not None
    assert average.std() < 0.2 * model.std()  # sqrt of (1 - b) / (1 + b) x correlation time 3: .12


def test_small_models_are_not_lost_in_rounding() -> None:
    average = np.array([1.0])
    for t in range(10**5, 10**5 + 1000):
        average = Ema(0.99999).update(average, np.array([1.0 + 1e-3], np.float32), t)
    gap = float(np.float32(1.0 + 1e-3)) - 1.0
    assert average[0] - 1 == pytest.approx(gap * (1 - (1 - 9 / (10**5 + 510)) ** 1000), rel=0.01)


def test_the_average_is_its_own_array() -> None:
    model = np.ones(3, np.float32)
    average = Ema(0.9).update(None, model, 0)
    model[:] = 7
    assert average.tolist() == [1, 1, 1]
