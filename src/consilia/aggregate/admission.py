"""Which answers of a round count: only the offender loses its turn, and the records say why."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from consilia.core.errors import ProtocolError
from consilia.core.update import Bytes, ProtocolMessage, Release, Vector
from consilia.core.wire import unpack_vector


@dataclass
class Gate:
    """Admission of one round's answers.

    Attributes:
        round: The round in progress.
        plan_digest: What both ends agreed on.
        model_digest: The model that was sent out.
        asked: Sites that may answer.
        unpack: Reads a payload; raises `ProtocolError` where it is none.
        admitted: site -> vector, in order of admission.
        metrics: site -> the numbers that came along with an admitted answer.
        dropped: site -> reason.
    """

    round: int
    plan_digest: str
    model_digest: str
    asked: frozenset[str]
    unpack: Callable[[Bytes, str], Vector]
    admitted: dict[str, Vector] = field(default_factory=dict)
    metrics: dict[str, dict[str, object]] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)

    def offer(self, sender: str, item: Release | ProtocolMessage) -> str | None:
        """Admit an answer, or return why it does not count.

        A second answer never replaces the first: an equal one is ignored, another one is noted. `sender` is whom the
        transport authenticated, so an answer in another site's name costs that other site nothing.
        """
        reason = self._fault(sender, item)
        if reason is not None and sender in self.asked and sender not in self.admitted:
            self.dropped.setdefault(sender, reason)
        return reason

    def _fault(self, sender: str, item: Release | ProtocolMessage) -> str | None:
        if item.site != sender:
            return "answered in another site's name"
        if sender not in self.asked:
            return "was not asked this round"
        if isinstance(item, ProtocolMessage):
            return f"{item.kind}: {str(item.body.get('error', 'no reason given'))[:64]}"
        if item.round != self.round:
            return f"answered round {item.round} in round {self.round} (late or replayed)"
        if item.plan_digest != self.plan_digest:
            return "answered for another plan"
        if item.model_digest != self.model_digest:
            return "trained another model"
        if sender in self.admitted:
            return "answered twice; the first answer counts"
        try:
            vector = self.unpack(item.payload, sender)
        except ProtocolError as error:
            return f"malformed: {error.problems[0].got} instead of {error.problems[0].needs}"
        if not np.isfinite(vector).all():
            return "not finite: NaN or infinite values"
        self.admitted[sender] = vector
        self.metrics[sender] = dict(item.metrics)
        self.dropped.pop(sender, None)
        return None


def no_vector(payload: Bytes, who: str) -> Vector:
    """Accept an answer without a vector, such as a score."""
    return unpack_vector(payload, 0, who=who)
