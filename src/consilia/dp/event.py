"""What was done to the data, as frozen values: the only thing an accountant sees.

`Event` is Gaussian noise on a sum, `DiscreteGaussianEvent` integer noise that sites add up, `EpsilonDeltaEvent` a release whose
(epsilon, delta) was proved as a whole. An event travels with the mechanism that draws the noise; nobody types an epsilon in.
"""

from dataclasses import dataclass
from functools import cached_property

from consilia.core.canonical import Json, digest
from consilia.core.spec import Adjacency
from consilia.dp.discrete_event import DiscreteGaussianEvent

__all__ = ["AnyEvent", "DiscreteGaussianEvent", "EpsilonDeltaEvent", "Event", "event_from_json"]


@dataclass(frozen=True)
class Event:
    """`steps` releases of a Gaussian with this multiplier on a (possibly Poisson-sampled) sum.

    Attributes:
        noise_multiplier: Standard deviation of the noise over the l2 sensitivity under `adjacency`.
        sampling_rate: q of the secret Poisson sample; 1 means every record takes part (no amplification).
        steps: How many such releases one charge covers.
        adjacency: The neighbouring relation that the sensitivity was stated for. With replace-one the accountant is
            asked without amplification only (q = 1).
    """

    noise_multiplier: float
    sampling_rate: float = 1.0
    steps: int = 1
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    def to_json(self) -> dict[str, Json]:
        """Return plain values for a ledger or a record."""
        return {
            "mechanism": "gaussian",
            # Through float: 1 and 1.0 are the same mechanism and must not have two digests.
            "noise_multiplier": float(self.noise_multiplier),
            "sampling_rate": float(self.sampling_rate),
            "steps": self.steps,
            "adjacency": str(self.adjacency),
        }

    @classmethod
    def from_json(cls, value: dict[str, Json]) -> "Event":
        """Read back what `to_json` wrote.

        Raises:
            ValueError: If a field is missing or of another kind.
        """
        try:
            if value["mechanism"] != "gaussian":
                raise ValueError(f"unknown mechanism {value['mechanism']!r}")
            return cls(
                float(value["noise_multiplier"]),  # type: ignore[arg-type]
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
        return f"noise multiplier {self.noise_multiplier:g}, sampling rate {self.sampling_rate:g}, {self.steps} steps"


@dataclass(frozen=True)
class EpsilonDeltaEvent:
    """One (epsilon, delta)-differentially private release, whatever its mechanism; such releases add up.

    Attributes:
        epsilon: At least 0.
        delta: In [0, 1); with 0 it is called pure, and epsilon bounds the logarithm of the ratio of densities.
        adjacency: The neighbouring relation that the bound was stated for.
    """

    epsilon: float
    delta: float = 0.0
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    def to_json(self) -> dict[str, Json]:
        """Return plain values for a ledger or a record."""
        return {
            "mechanism": "epsilon-delta",
            "epsilon": float(self.epsilon),
            "delta": float(self.delta),
            "adjacency": str(self.adjacency),
        }

    @classmethod
    def from_json(cls, value: dict[str, Json]) -> "EpsilonDeltaEvent":
        """Read back what `to_json` wrote.

        Raises:
            ValueError: If a field is missing or of another kind.
        """
        try:
            return cls(
                float(value["epsilon"]),  # type: ignore[arg-type]
                float(value["delta"]),  # type: ignore[arg-type]
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
        return f"epsilon {self.epsilon:g}" + (f", delta {self.delta:g}" if self.delta else " without a delta")


AnyEvent = Event | DiscreteGaussianEvent | EpsilonDeltaEvent


def event_from_json(value: dict[str, Json]) -> AnyEvent:
    """Read back an event of any kind.

    Raises:
        ValueError: If it is none.
    """
    mechanism = value.get("mechanism") if isinstance(value, dict) else None
    if mechanism == "epsilon-delta":
        return EpsilonDeltaEvent.from_json(value)
    if mechanism == "discrete-gaussian":
        return DiscreteGaussianEvent.from_json(value)
    return Event.from_json(value)
