"""What the run has spent so far, for the display of each round.

The stated guarantee is the plan's and covers the whole schedule; this is the odometer beside it.
"""

from collections.abc import Mapping, Sequence

from consilia.dp.accountant import bound, rdp_epsilon
from consilia.dp.event import EpsilonDeltaEvent
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
        self._within = plan.within

    def epsilon(self, charges: Mapping[str, Sequence[int]], evaluations: int) -> float | None:
        """Return the largest bound over sites, or None where the run claims none.

        Args:
            charges: For each site how often it may have charged each phase's mechanism.
            evaluations: Charged evaluations asked for.
        """
        if self._total is None or self._delta is None or self._within is not None:
            return self._total  # a trial's search was charged as a whole before its first round
        # Sites with the same mechanisms and schedule share one evaluation: the largest count of each phase counts. With
        # another schedule the whole one's bound, at which the display stops, is another, too.
        worst: dict[tuple[float | str | None, ...], list[int]] = {}
        charge_of: dict[tuple[float | str | None, ...], Charge] = {}
        for site, counts in charges.items():
            charge = self._charges[site]
            events = [event.digest for event in charge.round_events if event is not None]
            key = (charge.epsilon.get(self._against), *events)
            known = worst.setdefault(key, [0] * len(charge.round_events))
            worst[key] = [max(pair) for pair in zip(known, counts, strict=True)]
            charge_of[key] = charge
        return max((self._bound(charge_of[key], counts, evaluations) for key, counts in worst.items()), default=0.0)

    def _bound(self, charge: Charge, counts: Sequence[int], evaluations: int) -> float:
        total = charge.epsilon.get(self._against)
        if self._delta is None or total is None:
            return float("inf")
        spent = [
            (event, count)
            for event, count in zip(charge.round_events, counts, strict=True)
            if event is not None and count
        ]
        if charge.evaluation_event is not None and evaluations:
            spent.append((charge.evaluation_event, evaluations))
        if not spent:
            return 0.0
        delta = self._delta - charge.extra_delta
        if all(isinstance(event, EpsilonDeltaEvent) or event.sampling_rate == 1.0 for event, _ in spent):
            return min(total, bound(spent, delta).epsilon)
        return min(total, rdp_epsilon(spent, delta))
