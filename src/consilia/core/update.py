"""What must stay at a site and what may leave it are different types."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from consilia.core.canonical import Json

Vector = NDArray[np.float32]
Bytes = bytes | memoryview  # a frame's payload may be a view of the frame


@dataclass(frozen=True)
class Update:
    """A site's raw difference. It stays at the site: no transport, store or wire function accepts it.

    Attributes:
        vector: Shape (d,), float32.
        weight: The public registered weight of the site in the average.
    """

    vector: Vector
    weight: float


@dataclass(frozen=True)
class Release:
    """Bytes computed from data and accounted for: these may leave the site.

    Attributes:
        payload: The encoded vector, as `core.wire.pack_vector` makes it.
        site: Name of the site.
        round: Number of the round, from 1.
        plan_digest: The plan both ends agreed on.
        model_digest: The global model that the site started from.
        metrics: Numbers the plan declares public, or that a mechanism released and the ledger charged.
    """

    payload: Bytes
    site: str
    round: int
    plan_digest: str
    model_digest: str
    metrics: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class ProtocolMessage:
    """A message never computed from data: a task, an agreement, a refusal or an error class.

    Attributes:
        kind: One of "task", "refused", "failed".
        site: The site that sends it or that it is for.
        round: Number of the round, from 1; 0 before the first.
        body: Plain values. At a site: never anything read from data; only an exception's class leaves.
        payload: Tensors from the coordinator (the global model), empty from a site.
    """

    kind: str
    site: str
    round: int
    body: dict[str, Json] = field(default_factory=dict)
    payload: Bytes = b""


@dataclass(frozen=True)
class Gone:
    """A site that will not answer this round, as the transport saw it."""

    site: str
    reason: str
