"""Newton's method for a ridge logistic loss plus a linear term, with a bound on the gradient that counts rounding."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from consilia.core.errors import ProtocolError

Vector64 = NDArray[np.float64]

_UNIT = 2.0**-53
_BLOCK = 512  # rows summed at a time: rounding grows with the longest chain of additions
_STEPS, _HALVINGS = 200, 40


@dataclass(frozen=True)
class RidgeLogistic:
    """The function F(w) = sum_i log(1 + exp(-z_i.w)) + mu/2 |w|^2 + c.w.

    Attributes:
        signed: z_i = y_i x_i, shape (n, d), float64.
        curvature: mu, above 0.
        linear: c, shape (d,).
        row_bound: s, a bound on |z_i|.
    """

    signed: Vector64
    curvature: float
    linear: Vector64
    row_bound: float

    def gradient(self, w: Vector64) -> tuple[Vector64, Vector64]:
        """Return the gradient (d,) and each row's p = 1 / (1 + exp(z.w)), shape (n,)."""
        p = special.expit(-(self.signed @ w))
        pulled = np.zeros_like(w)
        for start in range(0, len(p), _BLOCK):
            pulled += p[start : start + _BLOCK] @ self.signed[start : start + _BLOCK]
        return self.curvature * w + self.linear - pulled, p

    def hessian(self, p: Vector64) -> Vector64:
        """Return the second derivative, shape (d, d)."""
        weighted = self.signed * (p * (1.0 - p))[:, None]
        return np.asarray(weighted.T @ self.signed + self.curvature * np.eye(self.signed.shape[1]))

    def rounding(self, w: Vector64) -> float:
        """Return a bound on how far the computed gradient at `w` is from the true one, in l2.

        A dot product of k terms is off by at most k units of the sum of magnitudes; a margin's error passes through a
        slope of at most 1/4. The factor 2 covers products of errors, the exponential and this sum itself.

        Source:
            Higham (2002), Accuracy and stability of numerical algorithms, section 3.1.
        """
        n, d = self.signed.shape
        size = float(np.linalg.norm(w))
        chain = min(n, _BLOCK) + n / _BLOCK + 16.0 + (d + 2) * self.row_bound * size / 4.0
        ends = self.curvature * size + float(np.linalg.norm(self.linear))
        return float(2.0 * _UNIT * (n * self.row_bound * chain + 4.0 * ends))


def minimise(problem: RidgeLogistic, start: Vector64, tolerance: float) -> Vector64:
    """Return a point, shape (d,), where the true gradient's norm is at most `tolerance`.

    Damped Newton steps, halved until the gradient's norm falls: its square falls along every Newton step (the derivative
    is -2 |g|^2), and F is strongly convex, so in exact arithmetic this ends for every input.

    Raises:
        ProtocolError: If it does not get there. The text holds nothing that was computed from rows.
    """
    w = start
    gradient, p = problem.gradient(w)
    norm = float(np.linalg.norm(gradient))
    for _ in range(_STEPS):
        if norm + problem.rounding(w) <= tolerance:
            return w
        step = np.linalg.solve(problem.hessian(p), gradient)
        length = 1.0
        for _ in range(_HALVINGS):
            candidate = w - length * step
            next_gradient, next_p = problem.gradient(candidate)
            next_norm = float(np.linalg.norm(next_gradient))
            if next_norm <= (1.0 - 0.1 * length) * norm:
                break
            length /= 2.0
        else:
            break
        w, gradient, p, norm = candidate, next_gradient, next_p, next_norm
    raise ProtocolError.of("objective perturbation", needs=f"a minimiser to a gradient of {tolerance:.2g}",
                           got="none that float64 arithmetic can certify",
                           hint="Nothing is released: raise the ridge, or register the rows in smaller parts")  # fmt: skip
