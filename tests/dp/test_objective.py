"""Objective perturbation: its law in one dimension, its bound on neighbours, and what it refuses."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import integrate, optimize, special, stats

from consilia.core.errors import PlanError, ProtocolError
from consilia.core.randomness import SecretRng, SharedSeed
from consilia.dp.gaussian import exact_epsilon
from consilia.dp.objective import ObjectivePerturbation, bounded, free_ridge
from consilia.dp.objective_bound import epsilon_of, gaussian_multiplier, noise_scale
from consilia.dp.objective_noise import radial_noise
from consilia.dp.objective_solver import RidgeLogistic, minimise

Vector64 = NDArray[np.float64]
Neighbours = tuple[Vector64, NDArray[np.int64], float]
LEVEL = 1e-6  # streams are fixed: the chance that a seed was unlucky


def rng(label: str) -> SecretRng:
    return SecretRng.reproducible_from(SharedSeed.of(11).derive(label))


def log_density(
    w: Vector64, signed: Vector64, mu: float, theta: float, counts: NDArray[np.int64] | int = 1
) -> Vector64:
    """Log density of the exact minimiser in one dimension, at each w: the noise's, times |db/dw|.

    Args:
        w: Shape (m,).
        signed: y_i x_i of the rows, shape (n,).
        mu: Ridge.
        theta: Scale of the noise.
        counts: How often each row is there, shape (n,).
    """
    p = special.expit(-np.outer(w, signed))
    noise = p @ (counts * signed) - mu * w
    slope = mu + (p * (1 - p)) @ (counts * signed**2)
    return np.asarray(-np.abs(noise) / theta - math.log(2 * theta) + np.log(slope))


def largest_loss(neighbours: Neighbours, mu: float, theta: float) -> float:
    """Largest |log ratio of densities| over a grid of outputs, when the row is added."""
    rows, counts, extra = neighbours
    w = np.concatenate([np.linspace(-60, 60, 601), np.linspace(-8, 4, 241)])
    before = log_density(w, rows, mu, theta, counts)
    after = log_density(w, np.append(rows, extra), mu, theta, np.append(counts, 1))
    return float(np.abs(after - before).max())


# (rows, how often each is there, added row): nobody beside it; a crowd that it joins; a crowd against it; a mixed one; and
# a crowd of short rows, which moves the gradient and adds no curvature, so that the added row's slope and curvature both
# tell: the worst case.
def crowd(row: float, count: int) -> Neighbours:
    return np.array([row]), np.array([count]), 1.0


WORST = crowd(-1e-5, 500_000_000)
NEIGHBOURS = [
    (np.zeros(0), np.zeros(0, np.int64), 1.0),
    crowd(1.0, 300),
    crowd(-1.0, 300),
    (np.linspace(-1, 1, 21), np.ones(21, np.int64), -1.0),
    WORST,
]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("share", [0.3, 1.0, 10.0])
def test_neighbours_differ_by_at_most_epsilon_and_less_noise_is_caught(epsilon: float, share: float) -> None:
    mu = share / epsilon
    theta = noise_scale(epsilon, mu, 1.0)
    losses = [largest_loss(pair, mu, theta) for pair in NEIGHBOURS]
    assert 0.97 * epsilon < max(losses) <= epsilon * (1 + 1e-9)
    assert max(largest_loss(pair, mu, theta / 1.3) for pair in NEIGHBOURS) > epsilon


def gaussian_density(w: Vector64, signed: Vector64, mu: float, sigma: float, counts: NDArray[np.int64]) -> Vector64:
    """Log density of the minimiser with Gaussian noise of standard deviation sigma; else as `log_density`."""
    p = special.expit(-np.outer(w, signed))
    noise = p @ (counts * signed) - mu * w
    slope = mu + (p * (1 - p)) @ (counts * signed**2)
    return np.asarray(stats.norm.logpdf(noise, scale=sigma) + np.log(slope))


def largest_delta(neighbours: Neighbours, mu: float, sigma: float, epsilon: float) -> float:
    """The exact delta at `epsilon` of a row added or removed, by integration over outputs in one dimension."""
    rows, counts, extra = neighbours

    def root(noise: float) -> float:  # of B(w) = noise; B falls in w
        return float(optimize.brentq(lambda w: special.expit(-w * rows) @ (counts * rows) - mu * w - noise, -1e5, 1e5))

    w = np.linspace(root(12 * sigma), root(-12 * sigma), 200_001)
    before = np.exp(gaussian_density(w, rows, mu, sigma, counts))
    after = np.exp(gaussian_density(w, np.append(rows, extra), mu, sigma, np.append(counts, 1)))
    pairs = ((after, before), (before, after))
    return max(float(np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0), w)) for p, q in pairs)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("share", [1.0, 30.0])
def test_gaussian_noise_keeps_delta_and_less_of_it_does_not(epsilon: float, share: float) -> None:
    mu, delta = share / epsilon, 1e-3
    sigma = gaussian_multiplier(epsilon, delta, mu, 1.0)
    found = [largest_delta(pair, mu, sigma, epsilon) for pair in NEIGHBOURS]
    assert 0.95 * delta < max(found) <= delta * (1 + 1e-6)
    assert max(largest_delta(pair, mu, sigma / 1.3, epsilon) for pair in NEIGHBOURS) > delta


def test_a_ridge_below_the_free_one_is_refused_with_gaussian_noise() -> None:
    z = gaussian_multiplier(1.0, 1e-3, 1.0, 1.0)
    assert exact_epsilon(1 / z, 1e-3) == pytest.approx(1.0, rel=1e-5)
    assert gaussian_multiplier(1.0, 1e-3, 1e6, 1.0) == z
    with pytest.raises(PlanError, match="a ridge above 1"):
        gaussian_multiplier(1.0, 1e-3, 0.99, 1.0)
    # With a far smaller ridge it would be wrong: the curvature of one row tells, where the noise just balances the crowd.
    assert largest_delta(crowd(-1e-4, int(7 * z / 1e-4)), 0.02, z, 1.0) > 1.2e-3


@given(st.floats(1e-3, 20), st.floats(0.01, 100), st.sampled_from([0.0, 1e-9, 1e-5, 1e-2]))
def test_the_free_ridge_is_free(epsilon: float, s: float, delta: float) -> None:
    mechanism = ObjectivePerturbation(epsilon, free_ridge(epsilon, s), 1, s, delta=delta)
    steep = ObjectivePerturbation(epsilon, 1e3 * free_ridge(epsilon, s), 1, s, delta=delta)
    assert mechanism.noise_scale == pytest.approx(steep.noise_scale, rel=1e-6)


def test_gaussian_releases_follow_their_law() -> None:
    signed = np.array([0.9, 0.9, -0.5, 0.2, -0.9])
    mechanism = ObjectivePerturbation(epsilon=1.0, alpha=1.5, rows=5, delta=1e-3)
    assert mechanism.event.delta == 1e-3
    draws = sampled(mechanism, signed, 3000, "gaussian law")

    def against(sigma: float) -> float:
        noise = special.expit(-np.outer(draws, signed)) @ signed - 1.5 * draws
        return float(stats.kstest(noise, stats.norm(scale=sigma).cdf).pvalue)

    assert against(mechanism.noise_scale) > LEVEL
    assert against(1.3 * mechanism.noise_scale) < LEVEL
    assert against(mechanism.noise_scale / 1.3) < LEVEL


def test_without_the_jacobian_a_small_ridge_would_break_the_bound() -> None:
    # theta = s / epsilon is enough from mu = s^2 / epsilon on, and not below.
    mu, epsilon = 0.2, 1.0
    assert largest_loss(WORST, mu, 1.0 / epsilon) > epsilon
    assert largest_loss(WORST, mu, noise_scale(epsilon, mu, 1.0)) <= epsilon
    assert noise_scale(epsilon, mu, 1.0) > 1.0 / epsilon
    assert noise_scale(epsilon, 1.0 / epsilon, 1.0) == 1.0 / epsilon


def test_the_curvature_term_grows_with_the_square_of_the_row_bound() -> None:
    # A row of norm 3 in units where alpha is 9 times larger is the same problem; a formula in c s / alpha says otherwise.
    for s in (0.2, 1.0, 3.0):
        assert epsilon_of(2.0 * s, 0.7 * s * s, s) == pytest.approx(epsilon_of(2.0, 0.7, 1.0), rel=1e-12)
    # c s / mu in the logarithm is what one library has; with long rows it promises less than happens.
    mu, theta, s = 3.0, 9.0, 3.0
    promised = s / theta + math.log1p(s / mu / 4)
    assert promised < largest_loss((*WORST[:2], 3.0), mu, theta) <= epsilon_of(theta, mu, s)


@given(st.floats(0.02, 50), st.floats(0.02, 50), st.floats(0.1, 10))
def test_the_closed_maximum_is_the_maximum(theta: float, mu: float, s: float) -> None:
    p = np.linspace(0, 1, 20001)
    by_grid = float(np.max(p * s / theta + np.log1p(p * (1 - p) * s * s / mu)))
    found = epsilon_of(theta, mu, s)
    assert by_grid <= found * (1 + 1e-12)
    assert found <= by_grid + 1e-6 * (1 + by_grid)
    assert found <= s / theta + math.log1p(s * s / mu / 4)  # the two worst cases taken apart


@given(st.floats(0.05, 5), st.floats(0.3, 100), st.floats(0.1, 10))
def test_the_noise_is_the_least_that_pays(epsilon: float, share: float, s: float) -> None:
    mu = share * s * s / epsilon
    theta = noise_scale(epsilon, mu, s)
    assert epsilon_of(theta, mu, s) <= epsilon * (1 + 1e-12)
    assert theta == pytest.approx(s / epsilon) or epsilon_of(theta * (1 - 1e-6), mu, s) > epsilon
    # Chaudhuri et al. (2011), corollary 11 with alpha = n Lambda: for replacing a row, which is removing and adding one.
    rest = 2 * epsilon - 2 * math.log1p(s * s / mu / 4)
    assert theta <= 2 * s / rest * (1 + 1e-9) if rest > 0 else True


def test_the_density_is_one() -> None:
    signed, mu, theta = np.array([1.0, 1.0, -0.4]), 0.5, 2.0
    total, _ = integrate.quad(
        lambda w: math.exp(log_density(np.array([w]), signed, mu, theta)[0]), -80, 80, points=[0.0], limit=400
    )
    assert total == pytest.approx(1.0, abs=1e-6)


def sampled(mechanism: ObjectivePerturbation, signed: Vector64, count: int, label: str) -> Vector64:
    stream = rng(label)
    features, positive = np.abs(signed)[:, None], signed > 0
    return np.array([mechanism.release(features, positive, stream)[0] for _ in range(count)])


def fits(draws: Vector64, signed: Vector64, mu: float, theta: float) -> bool:
    """Kolmogorov-Smirnov test against the law above: w at or below x just where b is at or above b(x)."""

    def cdf(x: Vector64) -> Vector64:
        b = special.expit(-np.outer(x, signed)) @ signed - mu * x
        return np.asarray(stats.laplace.sf(b, scale=theta))

    return float(stats.kstest(draws, cdf).pvalue) > LEVEL


def test_releases_follow_the_law_and_a_smaller_noise_does_not() -> None:
    signed = np.array([0.9, 0.9, -0.5, 0.2, -0.9])
    mechanism = ObjectivePerturbation(epsilon=1.0, alpha=1.0, rows=5)
    draws = sampled(mechanism, signed, 4000, "law")
    assert fits(draws, signed, 1.0, mechanism.noise_scale)
    assert not fits(draws, signed, 1.0, 1.3 * mechanism.noise_scale)  # what ran has noise 1.3 times too small
    assert not fits(draws, signed, 1.0, mechanism.noise_scale / 1.3)


def test_the_noise_has_a_uniform_direction_and_a_gamma_norm() -> None:
    draws = np.array([radial_noise(3, 2.0, stream) for stream in [rng("noise")] for _ in range(8000)])
    norms = np.linalg.norm(draws, axis=1)
    assert stats.kstest(norms, stats.gamma(3, scale=2.0).cdf).pvalue > LEVEL
    assert stats.kstest(norms, stats.gamma(3, scale=2.0 / 1.2).cdf).pvalue < LEVEL
    assert stats.kstest(norms, stats.gamma(1, scale=2.0).cdf).pvalue < LEVEL
    heights = (draws / norms[:, None])[:, 0]  # on a sphere in three dimensions each coordinate is uniform
    assert stats.kstest(heights, stats.uniform(-1, 2).cdf).pvalue > LEVEL


def test_both_conventions_have_one_minimiser() -> None:
    # Sum: alpha/2 |w|^2 + b.w. Mean over n: Lambda/2 |w|^2 + b.w/n, Lambda = alpha/n. Here the mean is minimised by itself.
    generator = np.random.default_rng(5)
    n, alpha, b = 40, 3.0, generator.normal(size=4)
    signed = bounded(generator.normal(size=(n, 4)), 1.0) * generator.choice([-1.0, 1.0], size=(n, 1))
    by_sum = minimise(RidgeLogistic(signed, alpha, b, 1.0), np.zeros(4), 1e-9)
    by_mean = np.zeros(4)
    for _ in range(4000):
        pulled = (special.expit(-(signed @ by_mean))[:, None] * signed).mean(axis=0)
        by_mean -= 2.0 * (-pulled + alpha / n * by_mean + b / n)
    np.testing.assert_allclose(by_sum, by_mean, atol=1e-8)


@settings(max_examples=30)
@given(st.integers(0, 60), st.integers(1, 8), st.floats(0.05, 3), st.floats(1, 100), st.integers(0, 2**32 - 1))
def test_the_solver_keeps_its_word(n: int, d: int, epsilon: float, share: float, seed: int) -> None:
    generator = np.random.default_rng(seed)
    signed = bounded(generator.normal(size=(n, d)) * 10 ** generator.uniform(-3, 3), 1.0)
    mechanism = ObjectivePerturbation(epsilon, share / epsilon, max(n, 1))
    problem = RidgeLogistic(signed, mechanism.curvature, radial_noise(d, mechanism.noise_scale, rng(str(seed))), 1.0)
    w = minimise(problem, np.zeros(d), mechanism.tolerance(d))
    wide = np.longdouble
    p = 1 / (1 + np.exp(signed.astype(wide) @ w.astype(wide)))
    gradient = problem.curvature * w.astype(wide) + problem.linear - p @ signed.astype(wide)
    assert float(np.linalg.norm(gradient.astype(float))) <= mechanism.tolerance(d)
    # Distance to the minimiser over the output noise's scale: what the solver's share of epsilon pays for.
    rho = mechanism.tolerance(d) / mechanism.curvature
    assert 2 * rho / mechanism.output_scale(d) <= 1e-3 * epsilon * (1 + 1e-12)


def test_the_rounding_bound_covers_rounding() -> None:
    generator = np.random.default_rng(2)
    signed = bounded(generator.normal(size=(5000, 20)), 1.0)
    problem = RidgeLogistic(signed, 1.0, generator.normal(size=20) * 50, 1.0)
    w = generator.normal(size=20) * 5
    wide = np.longdouble
    p = 1 / (1 + np.exp(signed.astype(wide) @ w.astype(wide)))
    true = w.astype(wide) + problem.linear - p @ signed.astype(wide)
    off = float(np.linalg.norm((problem.gradient(w)[0] - true).astype(float)))
    assert 0 < off < problem.rounding(w) < 1e-8


def test_a_solver_that_does_not_converge_releases_nothing() -> None:
    problem = RidgeLogistic(np.ones((3, 1)), 1.0, np.zeros(1), 1.0)
    with pytest.raises(ProtocolError, match="Nothing is released"):
        minimise(problem, np.zeros(1), 1e-18)  # finer than float64 can certify


def test_long_rows_are_scaled_down_and_broken_ones_count_as_zero() -> None:
    rows = np.array([[3.0, 4.0], [0.3, 0.4], [np.nan, 1.0], [np.inf, 0.0], [1e300, 1e300], [0.0, 0.0]])
    found = bounded(rows, 1.0)
    assert np.linalg.norm(found, axis=1).max() <= 1.0
    np.testing.assert_allclose(found[0], [0.6, 0.8], rtol=1e-9)
    np.testing.assert_array_equal(found[1], rows[1])
    assert not found[[2, 3, 5]].any()
    assert np.isfinite(found).all()


def test_a_row_counts_with_its_bounded_norm_only() -> None:
    mechanism = ObjectivePerturbation(1.0, 5.0, rows=3)
    positive = np.array([True, False, True])
    short = bounded(np.array([[3.0, 0.0], [0.0, -9.0], [np.nan, 0.0]]), 1.0)
    long = np.array([[30.0, 0.0], [0.0, -90.0], [0.0, np.inf]])
    np.testing.assert_allclose(
        mechanism.release(short, positive, rng("same")), mechanism.release(long, positive, rng("same")), rtol=1e-6
    )


def test_a_source_pulls_and_pays_for_the_curvature() -> None:
    source = np.array([3.0, -2.0])
    none = np.zeros((0, 2))
    far = ObjectivePerturbation(1.0, 1e-3, rows=1, pull=1e6)
    np.testing.assert_allclose(far.release(none, np.zeros(0, bool), rng("pull"), source), source, atol=1e-3)
    # A ridge of .2 alone needs more noise than s / epsilon; with a pull of .8 it does not.
    assert ObjectivePerturbation(1.0, 0.2, rows=1).noise_scale > 1.05
    assert ObjectivePerturbation(1.0, 0.2, rows=1, pull=0.9).noise_scale == pytest.approx(1.001, rel=1e-3)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"epsilon": 0.0}, "epsilon above 0"),
        ({"epsilon": math.nan}, "epsilon above 0"),
        ({"alpha": 0.0}, r"alpha \+ pull above 0"),
        ({"alpha": -1.0, "pull": 2.0}, "alpha of at least 0"),
        ({"alpha": math.inf}, "alpha of at least 0"),
        ({"rows": 0}, "rows of at least 1"),
        ({"delta": 1.0}, r"delta in \[0, 1\)"),
        ({"row_bound": -1.0}, "row_bound above 0"),
        ({"pull": -1.0}, "pull of at least 0"),
        ({"alpha": 0.01}, "a ridge above 0.14"),
    ],
)
def test_meaningless_numbers_are_refused(values: dict[str, float], named: str) -> None:
    with pytest.raises(PlanError, match=named):
        ObjectivePerturbation(**{"epsilon": 1.0, "alpha": 1.0, "rows": 10, **values})  # type: ignore[arg-type]


def test_other_shapes_and_too_many_rows_are_refused() -> None:
    mechanism = ObjectivePerturbation(1.0, 1.0, rows=2)
    with pytest.raises(ProtocolError, match="registered 2 rows"):
        mechanism.release(np.zeros((3, 1)), np.zeros(3, bool), rng("x"))
    with pytest.raises(ProtocolError, match="boolean labels"):
        mechanism.release(np.zeros((2, 1)), np.array([1, -1]), rng("x"))
    with pytest.raises(ProtocolError, match="a finite source"):
        mechanism.release(np.zeros((2, 1)), np.zeros(2, bool), rng("x"), np.array([np.nan]))
    assert mechanism.release(np.zeros((0, 1)), np.zeros(0, bool), rng("x")).shape == (1,)
