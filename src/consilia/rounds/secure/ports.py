"""A site's half of a secure sum, between its pipeline and the wire."""

from collections.abc import Mapping
from typing import Protocol

from consilia.core.canonical import Json
from consilia.core.randomness import SecretRng
from consilia.core.update import ProtocolMessage, Release
from consilia.pipeline.transform import Array


class SiteSum(Protocol):
    """What a site does so that the coordinator learns its update as part of a sum only."""

    def answer(self, task: ProtocolMessage) -> ProtocolMessage | Release:
        """Answer a step. What helps to open a sum is a `Release`; all else carries nothing computed from data.

        Raises:
            ProtocolError: If the step does not fit what this site has agreed to.
        """
        ...

    def ended(self) -> None:
        """Hear that the run is over: drop what is in memory of a sum under way, so that no late step takes it up again."""
        ...

    def ready(self, purpose: str, task: ProtocolMessage, model_digest: str) -> None:
        """Check that a task to train or to score may be answered under cover, before anything is charged for it.

        Raises:
            ProtocolError: If not.
        """
        ...

    def update(self, task: ProtocolMessage, vector: Array, loss: float | None, rng: SecretRng) -> bytes:
        """Return the payload that carries an update.

        Args:
            task: What was asked.
            vector: As the pipeline encoded it.
            loss: Mean training loss; it counts in a sum of unprotected runs only.
            rng: The site's secret randomness for this answer.
        """
        ...

    def scores(self, task: ProtocolMessage, metrics: Mapping[str, Json], rng: SecretRng) -> bytes:
        """Return the payload that carries what may be told of a model's scores."""
        ...
