"""Integer noise that several sites add up, as a frozen value: what an accountant sees of a distributed mechanism."""

import math
from dataclasses import dataclass
from functools import cached_property

from consilia.core.canonical import Json, digest
from consilia.core.spec import Adjacency


@dataclass(frozen=True)
class DiscreteGaussianEvent:
    """`steps` releases of an integer vector plus the sum of independent discrete Gaussian shares.

    Attributes:
        share_variance: sigma^2 of one share's distribution on the integers, in squared grid steps, at least 1.
        shares: How many shares are counted on: those of sites that answer and do not collude.
        l2: How far one unit moves the integer vector, in grid steps, rounding included.
        dim: Coordinates of the vector, d.
        sampling_rate: q of the secret Poisson sample; 1 means every record takes part (no amplification).
        steps: How many such releases one charge covers.
        adjacency: The neighbouring relation that `l2` was stated for.
    """

    share_variance: int
    shares: int
    l2: float
    dim: int
    sampling_rate: float = 1.0
    steps: int = 1
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    @property
    def ratio(self) -> float:
        """Standard deviation of the summed noise over the sensitivity; infinite where nothing moves."""
        return math.sqrt(self.shares) * math.sqrt(self.share_variance) / self.l2 if self.l2 else math.inf

    def scaled(self, factor: float) -> "DiscreteGaussianEvent":
        """Return the event of a plan whose noise multiplier is `factor` times this one's.

        Guarantees:
            A plan rounds its variance up to an integer. One less is scaled here and rounded down, so the event returned has
            at most the noise that such a plan draws (and at least the least there is).
        """
        variance = max(1, math.floor((self.share_variance - 1) * factor**2))
        return DiscreteGaussianEvent(
            variance, self.shares, self.l2, self.dim, self.sampling_rate, self.steps, self.adjacency
        )

    def covers(self, runs: "DiscreteGaussianEvent") -> bool:
        """Say whether charging this event pays for `runs`: no less noise, no larger a move, sample or count there."""
        return (
            self.adjacency is runs.adjacency
            and self.share_variance <= runs.share_variance
            and self.shares <= runs.shares
            and self.l2 >= runs.l2
            and self.dim >= runs.dim
            and self.sampling_rate >= runs.sampling_rate
            and self.steps >= runs.steps
        )

    def to_json(self) -> dict[str, Json]:
        """Return plain values for a ledger or a record."""
        return {
            "mechanism": "discrete-gaussian",
            # As text: a JSON number beyond 2^53 is not read back exactly everywhere.
            "share_variance": str(self.share_variance),
            "shares": self.shares,
            "l2": float(self.l2),
            "dim": self.dim,
            "sampling_rate": float(self.sampling_rate),
            "steps": self.steps,
            "adjacency": str(self.adjacency),
        }

    @classmethod
    def from_json(cls, value: dict[str, Json]) -> "DiscreteGaussianEvent":
        """Read back what `to_json` wrote.

        Raises:
            ValueError: If a field is missing or of another kind.
        """
        try:
            return cls(
                int(value["share_variance"]),  # type: ignore[arg-type]
                int(value["shares"]),  # type: ignore[arg-type]
                float(value["l2"]),  # type: ignore[arg-type]
                int(value["dim"]),  # type: ignore[arg-type]
                float(value["sampling_rate"]),  # type: ignore[arg-type]
                int(value["steps"]),  # type: ignore[arg-type]
                Adjacency(str(value["adjacency"])),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a privacy event: {error}") from None

    @cached_property
    def digest(self) -> str:
        """A name for events that are the same mechanism."""
        return digest(self.to_json())

    @property
    def summary(self) -> str:
        """The mechanism in words, for a message."""
        return (
            f"{self.shares} shares of integer noise, {self.ratio:g} times the sensitivity together, "
            f"sampling rate {self.sampling_rate:g}, {self.steps} steps"
        )
