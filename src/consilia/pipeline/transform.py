"""The port of a transform, and what its two halves may use."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from consilia.core.randomness import SecretRng
from consilia.core.spec import UpdateSpec
from consilia.dp.event import Event

Array = NDArray[np.floating]


@dataclass(frozen=True)
class SumContext:
    """What the server's half may use: the weights that entered the sum, and its own secret stream.

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

    def event(self, spec: UpdateSpec) -> Event | None:
        """Return what this step charges when it runs on an update of this spec (None: nothing)."""
        ...

    def encode(self, vector: Array, rng: SecretRng) -> Array:
        """At the site: map a vector of shape (d,) to the next one."""
        ...

    def decode(self, total: Array, context: SumContext) -> Array:
        """At the server: map a weighted sum of shape (d,) back, in reverse order of the chain."""
        ...
