import numpy as np
import pytest
from scipy import stats

from consilia.core.errors import PlanError, ProtocolError
from consilia.core.randomness import SecretRng, SharedSeed
from consilia.dp.mechanism import GaussianMechanism

MECHANISM = GaussianMechanism(noise_multiplier=1.5, sensitivity=0.25)
COUNT = 20_000
LEVEL = 1e-6  # the stream is fixed, so this is the chance that the seed was unlucky


def _rng(label: str) -> SecretRng:
    return SecretRng.reproducible_from(SharedSeed.of(7).derive(label))


def _noise(std_factor: float = 1.0, label: str = "noise") -> np.ndarray:
    mechanism = GaussianMechanism(MECHANISM.noise_multiplier * std_factor, MECHANISM.sensitivity)
    return np.asarray(mechanism.release(np.zeros(COUNT), _rng(label)))


def _scale_fits(noise: np.ndarray) -> bool:
    # Chi-square on the variance, two-sided.
    value = float(np.sum((noise / (1.5 * 0.25)) ** 2))
    return 2 * min(float(stats.chi2.cdf(value, noise.size)), float(stats.chi2.sf(value, noise.size))) > LEVEL


def _law_fits(noise: np.ndarray) -> bool:
    return float(stats.kstest(noise / (1.5 * 0.25), "norm").pvalue) > LEVEL


def test_noise_has_the_stated_scale_and_law() -> None:
    noise = _noise()
    assert _scale_fits(noise)
    assert _law_fits(noise)
    assert abs(noise.mean()) < 5 * MECHANISM.std / np.sqrt(COUNT)


@pytest.mark.parametrize("factor", [1 / 1.2, 1.2, MECHANISM.sensitivity, 1 / MECHANISM.sensitivity])
def test_the_tests_reject_a_wrong_scale(factor: float) -> None:
    noise = _noise(factor)
    assert not _scale_fits(noise)
    assert not _law_fits(noise)


def test_coordinates_and_releases_are_independent() -> None:
    first, second = _noise(label="a"), _noise(label="b")
    limit = 5 / np.sqrt(COUNT)
    assert abs(np.corrcoef(first, second)[0, 1]) < limit
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < limit
    half = COUNT // 2  # Box-Muller makes pairs from one radius
    assert abs(np.corrcoef(first[:half], first[half:])[0, 1]) < limit * 2
    assert abs(np.corrcoef(first[:half] ** 2, first[half:] ** 2)[0, 1]) < limit * 2


def test_two_releases_never_share_noise() -> None:
    rng = _rng("one stream")
    vector = np.ones(16, dtype=np.float32)
    assert not np.array_equal(MECHANISM.release(vector, rng), MECHANISM.release(vector, rng))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_is_kept_and_the_input_is_left_alone(dtype: type) -> None:
    vector: np.ndarray = np.arange(5, dtype=dtype)
    out = MECHANISM.release(vector, _rng("dtype"))
    assert out.dtype == dtype
    assert out.shape == (5,)
    np.testing.assert_array_equal(vector, np.arange(5, dtype=dtype))


def test_no_multiplier_means_no_noise() -> None:
    vector = np.array([-1.0, -0.3, 0.0, 2.0])
    np.testing.assert_array_equal(GaussianMechanism(0.0, 1.0).release(vector, _rng("z0")), vector)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_input_is_refused_before_noise_is_drawn(bad: float) -> None:
    rng, untouched = _rng("refuse"), _rng("refuse")
    with pytest.raises(ProtocolError, match="Clip first"):
        MECHANISM.release(np.array([0.0, bad]), rng)
    assert rng.token(8) == untouched.token(8)


@pytest.mark.parametrize(("z", "sensitivity"), [(-1.0, 1.0), (1.0, -1.0), (np.nan, 1.0), (1.0, np.inf)])
def test_meaningless_parameters_are_refused(z: float, sensitivity: float) -> None:
    with pytest.raises(PlanError) as caught:
        GaussianMechanism(z, sensitivity)
    assert all(problem.hint for problem in caught.value.problems)


def test_the_deviation_is_in_units_of_the_vector() -> None:
    assert MECHANISM.std == pytest.approx(0.375)
