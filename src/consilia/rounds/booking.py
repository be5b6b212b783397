"""The coordinator's own copy of what sites were charged: the sites' ledgers are the authority."""

from collections.abc import Sequence

from consilia.core.canonical import Json
from consilia.plan.run_plan import RunPlan
from consilia.rounds import claims
from consilia.rounds.gather import Metrics
from consilia.rounds.records import RoundRecord
from consilia.rounds.state import TrainingState


class Booking:
    """Counts charges as sites are asked, and keeps the newest head of each site's ledger.

    Args:
        plan: The checked plan.
    """

    def __init__(self, plan: RunPlan) -> None:
        self._phases = len(plan.phases)
        self._charged = any(charge.booked for charge in plan.charges.values())
        self._limits = {terms.name: [phase.participations for phase in terms.phases] for terms in plan.sites}
        self._heads: dict[str, str] = {}

    def book(self, state: TrainingState, metrics: Metrics, asked: Sequence[str], phase: int) -> None:
        """Charge those who were asked in a round: an answer may have been computed and lost.

        Args:
            state: Where the counts are kept.
            metrics: site -> what came along with its answer; a site that computed again says so itself.
            asked: Who was asked.
            phase: Index of the round's phase.
        """
        if not self._charged:
            return
        for site in sorted({*asked, *metrics}):
            told = metrics.get(site, {}).get("charges")
            limit = self._limits[site][phase]
            claimed = min(told, limit) if isinstance(told, int) and not isinstance(told, bool) else 0
            head = claims.head(metrics.get(site, {}).get("ledger_head"))
            if head is not None:
                self._heads[site] = head
            counts = state.charges.setdefault(site, [0] * self._phases)
            counts[phase] = min(limit, max(counts[phase] + (site in asked), claimed))

    def entries(self, state: TrainingState, record: RoundRecord) -> list[dict[str, Json]]:
        """Return what the journal keeps beside a round: for each site asked its charges so far and its ledger's head."""
        if not self._charged:
            return []
        return [
            {"site": site, "charges": sum(state.charges.get(site, [])), "head": self._heads.get(site, "")}
            for site in record.asked
        ]
