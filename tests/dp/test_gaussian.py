"""The exact epsilon of unsampled releases against the same formula with 60 digits."""

from typing import Any

import pytest

from consilia.dp.gaussian import exact_epsilon

mpmath: Any = pytest.importorskip("mpmath", reason="comes with torch (sympy)")
SCALES = [1e-12, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0, 1000.0]
DELTAS = [1e-3, 1e-5, 1e-8, 1e-10, 1e-15, 1e-20, 1e-50]


def true_delta(epsilon: Any, mu: float) -> Any:
    """Source: Balle and Wang (2018), theorem 8."""
    shift = mpmath.mpf(epsilon) / mpmath.mpf(mu)
    half = mpmath.mpf(mu) / 2
    return mpmath.ncdf(half - shift) - mpmath.exp(epsilon) * mpmath.ncdf(-half - shift)


@pytest.mark.parametrize("mu", SCALES)
def test_never_below_the_exact_value_and_close_to_it(mu: float) -> None:
    with mpmath.workdps(60):
        for delta in DELTAS:
            epsilon = exact_epsilon(mu, delta)
            assert true_delta(epsilon, mu) <= delta, (mu, delta)
            if epsilon and mu >= 1e-4:
                assert true_delta(epsilon * (1 - mpmath.mpf("2e-9")), mu) > delta, (mu, delta)
            if epsilon:  # what arithmetic may lose grows as mu falls, and is added: never more than a twentieth
                assert true_delta(epsilon * (1 - mpmath.mpf("0.05")), mu) > delta, (mu, delta)
