"""Which answers of a round count: only the offender loses its turn, and the records say why."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from consilia.core.errors import ProtocolError
from consilia.core.update import Bytes, ProtocolMessage, Release

_T = TypeVar("_T")


@dataclass
class Gate(Generic[_T]):
    """Admission of one round's answers.

    Attributes:
        round: The round in progress.
        plan_digest: What both ends agreed on.
        model_digest: The model that was sent out.
        asked: Sites that may answer.
        take: Reads a payload; raises `ProtocolError` where it is none.
        admitted: site -> what was read, in order of admission.
        metrics: site -> the numbers that came along with an admitted answer.
        dropped: site -> reason.
    """

    round: int
    plan_digest: str
    model_digest: str
    asked: frozenset[str]
    take: Callable[[Bytes, str], _T]
    admitted: dict[str, _T] = field(default_factory=dict)
    metrics: dict[str, dict[str, object]] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)

    def offer(self, sender: str, item: Release | ProtocolMessage) -> str | None:
        """Admit an answer, or return why it does not count.

        A second answer never replaces the first: an equal one is ignored, another one is noted. `sender` is whom the
        transport authenticated, so an answer in another site's name costs that other site nothing.
        """
        reason = self._fault(sender, item)
        if reason is not None:
            self.lost(sender, reason)
        return reason

    def lost(self, site: str, reason: str) -> None:
        """Note that a site which was asked, and has not been admitted, will not answer; the first reason stands."""
        if site in self.asked and site not in self.admitted:
            self.dropped.setdefault(site, reason)

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
            self.admitted[sender] = self.take(item.payload, sender)
        except ProtocolError as error:
            return f"sent {error.problems[0].got} instead of {error.problems[0].needs}"
        self.metrics[sender] = dict(item.metrics)
        self.dropped.pop(sender, None)
        return None
