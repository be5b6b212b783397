"""Who takes part in a run: every site is asked what its rows look like, then whether it agrees to the run."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from consilia.core.canonical import Json
from consilia.core.errors import ConsiliaError
from consilia.core.update import Bytes, ProtocolMessage, Release
from consilia.federation.offer import Offer, Surveyed
from consilia.rounds.exchange import exchange
from consilia.rounds.ports import Transport

Answer = Literal["unasked", "accepted", "waiting", "refused", "silent"]
_ANSWERS: tuple[Answer, ...] = ("accepted", "waiting", "refused")
# Of a fault at a site only its class arrives. An operator is told here, in the coordinator's own words, what it stands for.
_FAULTS = {
    "PolicyError": "its policy.toml cannot be read", "DataError": "its data file is not as the plan says",
    "PlanError": "the plan cannot be carried out there", "StoreError": "its ledger or keys cannot be used",
    "BudgetExceeded": "its ledger refuses", "ProtocolError": "it does not take such an offer",
}  # fmt: skip


@dataclass
class Enrolment:
    """What every site of a run has said so far.

    Attributes:
        names: The sites of the plan.
        surveyed: What each one's rows look like, once it has said so.
        answers: Where each one stands.
        reasons: Why it does not take part (yet).
    """

    names: tuple[str, ...]
    surveyed: dict[str, Surveyed] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    @property
    def accepted(self) -> list[str]:
        """The sites that agreed, in order."""
        return [name for name in self.names if self.answers.get(name) == "accepted"]

    @property
    def undecided(self) -> list[str]:
        """The sites that may yet agree, in order."""
        return [name for name in self.names if self.answers.get(name) not in ("accepted", "refused")]

    def survey(self, transport: Transport, offer: Offer, sites: Iterable[str], timeout: float) -> None:
        """Ask sites what their rows look like."""

        def read(site: str, item: ProtocolMessage) -> None:
            self.surveyed[site] = Surveyed.read(item.body, who=f"coordinator, from {site}")
            self.answers.pop(site, None)
            self.reasons.pop(site, None)

        self._ask(transport, "survey", offer, b"", sites, timeout, {"surveyed": read})

    def offer(self, transport: Transport, offer: Offer, initial: Bytes, sites: Iterable[str], timeout: float) -> None:
        """Ask sites whether they agree to a run; `initial` are the weights it starts from, where the plan names any."""

        def read(site: str, item: ProtocolMessage) -> None:
            answer: Answer = next((known for known in _ANSWERS if known == item.body.get("answer")), "refused")
            self._note(site, answer, item)

        self._ask(transport, "offer", offer, initial, sites, timeout, {"offered": read})

    def _ask(
        self, transport: Transport, kind: str, offer: Offer, payload: Bytes, sites: Iterable[str], timeout: float,
        readers: Mapping[str, Callable[[str, ProtocolMessage], None]],
    ) -> None:  # fmt: skip
        body = offer.body()

        def accept(site: str, item: Release | ProtocolMessage) -> None:
            if isinstance(item, Release) or item.site != site or item.body.get("run") != offer.run:
                self._silent(site, "answered something else")
                return
            try:
                reader = readers.get(item.kind)
                if reader is not None:
                    reader(site, item)
                else:
                    self._note(site, "refused", item)
            except ConsiliaError:
                self._silent(site, "sent an answer that is none")

        tasks = {site: ProtocolMessage(kind, site, 0, body, payload) for site in sites}
        if tasks:
            exchange(transport, tasks, accept=accept, gone=self._silent, timeout=timeout)

    def _note(self, site: str, answer: Answer, item: ProtocolMessage) -> None:
        self.answers[site] = answer
        clauses = item.body.get("clauses")
        told = [text[:300] for text in clauses if isinstance(text, str)][:20] if isinstance(clauses, list) else []
        if answer == "accepted":
            self.reasons.pop(site, None)
        else:
            self.reasons[site] = "; ".join(told) or _fault(item.body.get("error"))

    def _silent(self, site: str, why: str) -> None:
        if self.answers.get(site) != "accepted":
            self.answers[site], self.reasons[site] = "silent", why


def _fault(kind: Json) -> str:
    if not isinstance(kind, str):
        return "no reason given"
    return f"{_FAULTS.get(kind, 'it failed')}; its log says more ({kind[:64]})"
