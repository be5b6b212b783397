"""A task between its booking and its answer."""

from dataclasses import dataclass

from consilia.core.randomness import SecretRng
from consilia.core.update import ProtocolMessage, Vector
from consilia.rounds.ports import Learner, LocalState, Score, Trained
from consilia.store.ledger_store import Hold

Outcome = Trained | Score | Exception


@dataclass(frozen=True)
class Pending:
    """What a site has booked: it may be computed now, by itself or together with other sites of its process.

    Attributes:
        task: What was asked: to train or prepare, or to evaluate.
        model_digest: The model it came with.
        hold: The charge, on disk; None where nothing is charged.
        learner: The site's rows.
        payload: The vector that the coordinator sent.
        local: What the site kept since the last round that counted.
        secret: Where batches and noise come from, those of the pipeline too.
        factor: What the update counts for beside the site's weight, in (0, 1].
    """

    task: ProtocolMessage
    model_digest: str
    hold: Hold | None
    learner: Learner
    payload: Vector
    local: LocalState | None
    secret: SecretRng
    factor: float = 1.0

    def compute(self) -> Outcome:
        """Return what the learner gives, or what it raised."""
        try:
            if self.task.kind != "evaluate":
                return self.learner.train(self.payload, self.local, self.task.round, self.secret)
            return self.learner.evaluate(self.payload, self.local)
        except Exception as error:  # the site answers for it
            return error
