"""The port of a transform, and what its two halves may use."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from consilia.core.randomness import SecretRng
from consilia.core.spec import UpdateSpec

Array = NDArray[np.floating]


@dataclass(frozen=True)
class SumContext:
    """What the server's half may use.

    Attributes:
        rng: The server's secret randomness.
    """

    rng: SecretRng


class Transform(Protocol):
    """One step of a pipeline: a contract, the site's half and the server's half.

    State from round to round is not part of the port yet: it comes with the first transform that keeps any.
    """

    def contract(self, spec: UpdateSpec) -> UpdateSpec:
        """Return the spec after this step, or raise `IllegalChain` saying what it needs and what came."""
        ...

    def noise_multiplier(self, own: float) -> float | None:
        """Return the noise this step draws, relative to `own`; None if it draws none.

        Args:
            own: Bound on how far one unit of this site moves the weighted sum.
        """
        ...

    def encode(self, vector: Array, rng: SecretRng) -> Array:
        """At the site: map a vector of shape (d,) to the next one."""
        ...

    def decode(self, total: Array, context: SumContext) -> Array:
        """At the server: map a weighted sum of shape (d,) back, in reverse order of the chain."""
        ...
