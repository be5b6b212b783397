"""The port of a transform, and what its two halves may use."""

from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from consilia.core.randomness import SecretRng, SharedSeed
from consilia.core.spec import UpdateSpec

Array = NDArray[Any]  # float32 or float64 where values are real, int64 in a ring
State = MutableMapping[str, NDArray[np.generic]]


@dataclass(frozen=True)
class SiteContext:
    """What the site's half may use.

    Attributes:
        rng: The site's secret randomness for this round.
        shared: Public randomness of this round, the same at every site and at the server.
        weight: The site's weight in the sum over the largest of any site's, in (0, 1].
        state: What transforms keep at the site from one round that counted to the next, by name; they write to it.
    """

    rng: SecretRng
    shared: SharedSeed
    weight: float = 1.0
    state: State = field(default_factory=dict)


@dataclass(frozen=True)
class SumContext:
    """What the server's half may use.

    Attributes:
        rng: The server's secret randomness.
        shared: Public randomness of this round, the same as the sites'.
    """

    rng: SecretRng
    shared: SharedSeed


class Transform(Protocol):
    """One step of a pipeline: a contract, the site's half and the server's half."""

    def contract(self, spec: UpdateSpec) -> UpdateSpec:
        """Return the spec after this step, or raise `IllegalChain` saying what it needs and what came."""
        ...

    def noise_multiplier(self, own: float) -> float | None:
        """Return the noise this step draws, relative to `own`; None if it draws none.

        Args:
            own: Bound on how far one unit of this site moves the weighted sum.
        """
        ...

    def encode(self, vector: Array, context: SiteContext) -> Array:
        """At the site: map a vector to the next one."""
        ...

    def decode(self, total: Array, context: SumContext) -> Array:
        """At the server: map a weighted sum back, in reverse order of the chain."""
        ...
