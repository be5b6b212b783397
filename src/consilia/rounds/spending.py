"""What the run has spent so far, for the display of each round.

The stated guarantee is the plan's and covers the whole schedule; this is the odometer beside it.
"""

from collections.abc import Mapping

from consilia.dp.accountant import bound, rdp_epsilon
from consilia.plan.run_plan import Charge, RunPlan


class Spending:
    """Upper bound on epsilon after what was charged so far, and never more than the whole schedule's bound.

    It must not show beside a round, so sampled steps are bounded by RDP, which adds up; unsampled ones exactly.

    Guarantees:
        Epsilon of a prefix of the schedule is at most epsilon of the schedule, so the smaller of the two bounds is one.
    """

    def __init__(self, plan: RunPlan) -> None:
        self._charges = plan.charges
        self._against = plan.against
        self._total = plan.epsilon
        self._delta = plan.delta

    def epsilon(self, charges: Mapping[str, int], evaluations: int) -> float | None:
        """Return the largest bound over sites, or None where the run claims none."""
        if self._total is None or self._delta is None:
            return None
        # Sites with the same mechanism share one evaluation: the largest count among them.
        worst: dict[str, tuple[Charge, int]] = {}
        for site, count in charges.items():
            charge = self._charges[site]
            key = charge.round_event.digest if charge.round_event else ""
            if count > worst.get(key, (charge, -1))[1]:
                worst[key] = (charge, count)
        return max((self._bound(charge, count, evaluations) for charge, count in worst.values()), default=0.0)

    def _bound(self, charge: Charge, count: int, evaluations: int) -> float:
        total = charge.epsilon.get(self._against)
        if self._delta is None or total is None:
            return float("inf")
        if charge.round_event is None or count + evaluations == 0:
            return 0.0
        spent = [(charge.round_event, count)]
        if charge.evaluation_event is not None:
            spent.append((charge.evaluation_event, evaluations))
        delta = self._delta - charge.extra_delta
        if all(event.sampling_rate == 1.0 for event, _ in spent):
            return min(total, bound(spent, delta).epsilon)
        return min(total, rdp_epsilon(spent, delta))
