"""Objective perturbation: a logistic regression whose weights are (epsilon, delta)-private, released once."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from consilia.core.errors import PlanError, Problem, ProtocolError
from consilia.core.randomness import SecretRng
from consilia.dp.event import EpsilonDeltaEvent
from consilia.dp.objective_bound import gaussian_multiplier, noise_scale
from consilia.dp.objective_noise import radial_noise
from consilia.dp.objective_solver import RidgeLogistic, minimise

Vector64 = NDArray[np.float64]

_SOLVER_SHARE = 1e-3  # of epsilon, paid for the solver's being inexact
_INSIDE = 1.0 - 2.0**-40  # rows are scaled to a little less than the bound: rounding must not carry them over


@dataclass(frozen=True)
class ObjectivePerturbation:
    """Minimises sum_i log(1 + exp(-y_i x_i.w)) + alpha/2 |w|^2 + eta/2 |w - source|^2 + b.w and releases w.

    Attributes:
        epsilon: Of the whole release.
        alpha: Ridge weight of the *sum* objective (not of a mean), in units of s^2; alpha + eta has to be above 0.
        rows: Registered upper bound on the number of rows (public).
        row_bound: s; longer rows are scaled down to it.
        pull: eta, the weight that draws w towards a public or already released `source`; 0 without one.
        delta: Of the whole release. 0: radial noise, about d s / epsilon long. Above: Gaussian noise, about sqrt(d) z s.

    Guarantees:
        (epsilon, delta)-differential privacy, add-remove, for data sets with at most `rows` rows, for whatever rows hold: a row
        counts with at most norm s, and one that is not finite counts as zero. The solver's error is inside the
        guarantee: it stops at a certified distance rho from the minimiser, and noise of scale tau is added to w, which
        costs 2 rho / tau (docs/guarantees-stacking.md, theorem 3). Assumptions: real-valued noise, and a solver that ends.

    Source:
        Chaudhuri, Monteleoni and Sarwate (2011), Differentially private empirical risk minimization, algorithm 2.
        Kifer, Smith and Thakurta (2012), Private convex empirical risk minimization, for Gaussian noise. Iyengar et al.
        (2019), Towards practical differentially private convex optimization, for noise that hides an inexact minimum; here
        it is radial, so that it costs no delta.
    """

    epsilon: float
    alpha: float
    rows: int
    row_bound: float = 1.0
    pull: float = 0.0
    delta: float = 0.0

    def __post_init__(self) -> None:
        problems = [
            Problem("objective perturbation", f"{name} {needs}", f"{value:g}", hint)
            for name, needs, value, fits, hint in (
                ("epsilon", "above 0, finite", self.epsilon, 0 < self.epsilon < np.inf, "Usual is 0.1 to 3"),
                ("alpha", "of at least 0, finite", self.alpha, 0 <= self.alpha < np.inf, "Usual is 1 / epsilon to 100"),
                (
                    "alpha + pull",
                    "above 0",
                    self.curvature,
                    not self.curvature <= 0,
                    "Without a ridge nothing is bounded",
                ),
                ("rows", "of at least 1", self.rows, self.rows >= 1, "Register an upper bound on the rows"),
                ("row_bound", "above 0, finite", self.row_bound, 0 < self.row_bound < np.inf, "Usual is 1"),
                ("delta", "in [0, 1)", self.delta, 0 <= self.delta < 1, "Usual is 1e-5; 0 for none"),
                ("pull", "of at least 0, finite", self.pull, 0 <= self.pull < np.inf, "0 means no source"),
            )
            if not fits
        ]
        if problems:
            raise PlanError(problems)
        _ = self.noise_scale  # a ridge too small for epsilon is refused before any data is read

    @property
    def event(self) -> EpsilonDeltaEvent:
        """What one release costs."""
        return EpsilonDeltaEvent(self.epsilon, self.delta)

    @property
    def curvature(self) -> float:
        """Least second derivative of the objective: alpha + eta."""
        return self.alpha + self.pull

    @cached_property
    def noise_scale(self) -> float:
        """Scale of the noise b in the objective: theta of radial noise, the standard deviation sigma of Gaussian noise."""
        epsilon = self.epsilon * (1.0 - _SOLVER_SHARE)
        if not self.delta:
            return noise_scale(epsilon, self.curvature, self.row_bound)
        # An inexact minimum multiplies probabilities by up to exp(rho / tau), delta's too.
        delta = self.delta * math.exp(-self.epsilon * _SOLVER_SHARE / 2.0)
        return self.row_bound * gaussian_multiplier(epsilon, delta, self.curvature, self.row_bound)

    def _noise(self, dim: int, rng: SecretRng) -> Vector64:
        return rng.normal(dim) * self.noise_scale if self.delta else radial_noise(dim, self.noise_scale, rng)

    def tolerance(self, dim: int, source: float = 0.0) -> float:
        """Bound on the gradient's norm where the solver stops: public, and far above what rounding leaves.

        Args:
            dim: Number of weights.
            source: Norm of the source's weights.
        """
        terms = self.rows * self.row_bound + dim * self.noise_scale + self.pull * source
        return 1e-13 * (100 + dim) * terms

    def output_scale(self, dim: int, source: float = 0.0) -> float:
        """Scale tau of the noise on w: at 2 rho / tau = a thousandth of epsilon, with rho = tolerance / curvature."""
        return 2.0 * self.tolerance(dim, source) / (self.curvature * _SOLVER_SHARE * self.epsilon)

    def release(
        self,
        features: NDArray[np.floating],
        positive: NDArray[np.bool_],
        rng: SecretRng,
        source: Vector64 | None = None,
    ) -> Vector64:
        """Return private weights, shape (d,).

        Args:
            features: Shape (n, d), n at most `rows`; may be empty.
            positive: True where the label is +1, shape (n,).
            rng: Secret randomness; 2 vectors are drawn.
            source: Weights to be drawn to, shape (d,), computed from other people's data or public; zero when None.

        Raises:
            ProtocolError: If shapes do not fit, there are more rows than registered, or the solver did not converge;
                nothing is released then.
        """
        dim = self._shape(features, positive, source)
        signed = bounded(features, self.row_bound) * np.where(positive, 1.0, -1.0)[:, None]
        noise = self._noise(dim, rng)
        centre = np.zeros(dim) if source is None else source
        problem = RidgeLogistic(signed, self.curvature, noise - self.pull * centre, self.row_bound)
        known = float(np.linalg.norm(centre))
        w = minimise(problem, centre.copy(), self.tolerance(dim, known))
        return w + radial_noise(dim, self.output_scale(dim, known), rng)

    def _shape(self, features: NDArray[np.floating], positive: NDArray[np.bool_], source: Vector64 | None) -> int:
        who = "objective perturbation"
        if features.ndim != 2 or positive.shape != features.shape[:1] or positive.dtype != np.bool_:
            raise ProtocolError.of(who, needs="features (n, d) and as many boolean labels", got="other shapes or types",
                                   hint="Flatten the features; say which label is positive")  # fmt: skip
        n, dim = features.shape
        if n > self.rows:
            raise ProtocolError.of(who, needs=f"at most the registered {self.rows} rows", got="more",
                                   hint="Register a larger count")  # fmt: skip
        if source is not None and (source.shape != (dim,) or not np.isfinite(source).all()):
            raise ProtocolError.of(who, needs=f"a finite source of {dim} weights", got="another one",
                                   hint="Source and target need the same columns")  # fmt: skip
        return int(dim)


def free_ridge(epsilon: float, row_bound: float) -> float:
    """Return the ridge from which on the curvature of the objective costs no noise."""
    return row_bound**2 / (epsilon * (1.0 - _SOLVER_SHARE)) * (1.0 + 1e-9)


def bounded(features: NDArray[np.floating], bound: float) -> Vector64:
    """Return rows as float64, those longer than `bound` scaled down to it, those not finite as zero. Shape (n, d)."""
    rows = np.array(features, dtype=np.float64)
    rows[~np.isfinite(rows).all(axis=1)] = 0.0
    with np.errstate(over="ignore"):  # a norm that overflows scales its row to zero
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows * (bound * _INSIDE / np.maximum(norms, bound * _INSIDE)))
