"""What the rounds need from outside: a way to send bytes, a learner, a clock."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from consilia.core.randomness import SecretRng
from consilia.core.update import Bytes, Gone, Vector

Clock = Callable[[], float]  # monotonic seconds; deadlines are durations on it
LocalState = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Arrival:
    """A frame that the transport received from a site it knows by name; a large one may be a view of a file."""

    site: str
    frame: Bytes


class Transport(Protocol):
    """Moves frames between the coordinator and sites; never sees an `Update`."""

    def send(self, site: str, frame: bytes) -> None:
        """Hand a frame to the transport; delivery is at least once."""
        ...

    def events(self, timeout: float, of: Collection[str] | None = None) -> Iterator[Arrival | Gone]:
        """Yield answers as they come, until those that are waited for have answered or `timeout` seconds passed.

        Args:
            timeout: Seconds.
            of: The sites that are waited for; None: all that were sent to. What others were sent stays with the transport,
                and their answers may be yielded too; what these did not answer in time is never yielded later. Who stops
                early goes on later: what was not answered by then stays with the transport, too.
        """
        ...


@dataclass(frozen=True)
class Trained:
    """What local training hands over.

    Attributes:
        vector: The update, shape (d,); with a control variate, [dy, dc] of shape (2 d,).
        local_state: What stays at the site until the round has counted (empty: nothing).
        loss: Mean training loss; it leaves the site only where nothing is protected.
    """

    vector: Vector
    local_state: LocalState
    loss: float | None


@dataclass(frozen=True)
class Score:
    """How a model does on held-out rows."""

    correct: int
    loss_sum: float
    rows: int


class Learner(Protocol):
    """A site's rows and the work the plan asks for."""

    def train(self, payload: Vector, local: LocalState | None, round_number: int, secret: SecretRng) -> Trained:
        """Train from the global model and return the update; deterministic given its arguments."""
        ...

    def evaluate(self, payload: Vector, local: LocalState | None) -> Score:
        """Score the global model (with the site's local layers) on its held-out rows."""
        ...
