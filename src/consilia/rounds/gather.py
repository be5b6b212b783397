"""What came of asking a cohort, however its answers were added: the port of a gatherer."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from consilia.core.canonical import Json
from consilia.core.update import Vector
from consilia.pipeline.transform import Array
from consilia.rounds.exchange import Traffic

Metrics = dict[str, dict[str, object]]


@dataclass
class Gathered:
    """The sum of a round's updates, and what else the coordinator got to know.

    Attributes:
        names: Whose updates are in the sum, in order.
        dropped: site -> why it is not in it.
        total: Sum of weight x vector before the pipeline decodes it, shape (sent,); None where it was not opened.
        weight: Sum of the weights in it.
        metrics: site -> numbers that came along.
        updates: Single updates, where the coordinator sees them.
        loss: Mean training loss, where it may be known.
        traffic: Bytes that crossed.
        reason: Why there is no total.
        factor: What the decoded total is multiplied by: where sites weigh by themselves, they do it by their share of the
            largest weight.
        asked: Who was asked to begin an update meanwhile; None where the schedule says it.
        over: True where no later round can have enough updates.
        staleness: site -> steps that the model has made since its update in the sum began; None where all start from it.
    """

    names: list[str]
    dropped: dict[str, str]
    total: Array | None
    weight: float
    metrics: Metrics
    updates: Mapping[str, Vector] = field(default_factory=dict)
    loss: float | None = None
    traffic: Traffic = field(default_factory=Traffic)
    reason: str | None = None
    factor: float = 1.0
    asked: tuple[str, ...] | None = None
    over: bool = False
    staleness: dict[str, int] | None = None


@dataclass
class Scored:
    """What sites told about a model.

    Attributes:
        metrics: site -> its numbers, where each site's own may be known.
        totals: (rows, right, sum of losses) over all sites, where only that may be known; no losses where counts are noised.
        traffic: Bytes that crossed.
    """

    metrics: Metrics
    totals: tuple[float, float, float | None] | None
    traffic: Traffic


class Gatherer(Protocol):
    """Asks sites and adds what comes."""

    def updates(self, number: int, asked: Sequence[str], payload: bytes, counted: Mapping[str, int]) -> Gathered:
        """Ask a round's cohort to train, and add its updates.

        Args:
            number: The round.
            asked: The cohort.
            payload: The model as it is sent.
            counted: site -> last round in which its answer counted.
        """
        ...

    def scores(self, number: int, payload: bytes, counted: Mapping[str, int]) -> Scored:
        """Ask every site how a model does on its held-out rows."""
        ...

    def stepped(self, model_digest: str) -> dict[str, Json] | None:
        """Hear which model, as it is sent, came of the last sum; return what is to be written down of it."""
        ...


def quorum(share: float, asked: int) -> int:
    """Return how many of the asked must answer: a share of them when at most 1 (rounded up), else a number."""
    return max(1, math.ceil(share * asked - 1e-9)) if share <= 1 else math.ceil(share)


def too_few(answered: int, asked: int, needed: int) -> str | None:
    """Return why a round does not count, or None if enough answered."""
    return f"{answered} of {asked} answers; quorum {needed}" if answered < needed else None
