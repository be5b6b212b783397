"""The noise's share of a running mean of squares, against noise that was drawn."""

import numpy as np
import pytest

from consilia.dp.second_moment import SecondMomentNoise

BETA = 0.9


@pytest.mark.parametrize("deviations", [[2.0], [0.5] * 3, [1.0] * 40, [3.0, 0.1, 1.0, 0.0, 2.0]])
def test_mean_and_standard_error_of_pure_noise(deviations: list[float]) -> None:
    rng = np.random.default_rng(0)
    v, share = np.zeros(200_000), SecondMomentNoise()
    for deviation in deviations:
        v = BETA * v + (1 - BETA) * (deviation * rng.standard_normal(len(v))) ** 2
        share = share.after(deviation**2, BETA)
    weight, mean, floor = share.corrected(BETA)
    assert weight == pytest.approx(1 - BETA ** len(deviations))
    assert (v / weight).mean() == pytest.approx(mean, rel=0.02)
    assert (v / weight).std() == pytest.approx(floor, rel=0.05)


def test_steady_noise_has_its_own_variance_and_no_noise_no_floor() -> None:
    share = none = SecondMomentNoise()
    for _ in range(7):
        share, none = share.after(4.0, BETA), none.after(0.0, BETA)
        assert share.corrected(BETA)[1] == pytest.approx(4.0)
    assert none.corrected(BETA)[1:] == (0.0, 0.0)
