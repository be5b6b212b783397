"""The Gaussian mechanism: the only place that turns a sensitivity and a multiplier into noise."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilia.core.errors import PlanError, Problem, ProtocolError
from consilia.core.randomness import SecretRng


@dataclass(frozen=True)
class GaussianMechanism:
    """Adds independent N(0, (z D)^2) to every coordinate.

    Attributes:
        noise_multiplier: z, at least 0 (0 adds nothing and guarantees nothing).
        sensitivity: D, the l2 sensitivity of the vector, in its units.

    Guarantees:
        If neighbouring data sets move the vector by at most D in l2, one release costs what an `Event` of this
        multiplier says, up to the floating-point caveat of `core.randomness`.

    Source:
        Dwork and Roth (2014), The algorithmic foundations of differential privacy, appendix A.
    """

    noise_multiplier: float
    sensitivity: float

    def __post_init__(self) -> None:
        problems = [
            Problem("the Gaussian mechanism", f"a {name} of at least 0, finite", str(value), hint)
            for name, value, hint in (
                ("noise multiplier", self.noise_multiplier, "Set privacy.noise_multiplier or privacy.epsilon"),
                ("sensitivity", self.sensitivity, "Take it from the clip norm and the public weights"),
            )
            if not 0 <= value < np.inf
        ]
        if problems:
            raise PlanError(problems)

    @property
    def std(self) -> float:
        """Standard deviation of the noise, in units of the vector."""
        return self.noise_multiplier * self.sensitivity

    def release(self, vector: NDArray[np.floating], rng: SecretRng) -> NDArray[np.floating]:
        """Return the vector plus fresh noise, shape (d,), in the vector's dtype (float32 or float64).

        The sum is taken in float64 and rounded once: rounding is post-processing, and noise drawn in float32 would have
        fewer values to hide among.

        Raises:
            ProtocolError: If the vector is not finite; nothing is drawn then.
        """
        if not np.isfinite(vector).all():
            raise ProtocolError.of(
                "the Gaussian mechanism",
                needs="finite values",
                got="a vector with NaN or infinity",
                hint="Clip first: the clipper turns such a vector into zero",
            )
        noised = rng.normal(vector.size)
        noised *= self.std
        noised += vector
        return noised.astype(vector.dtype)
