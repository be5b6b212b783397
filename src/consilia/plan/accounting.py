"""What each site's records may be charged, and the noise that keeps the largest of those bounds at the target."""

import math
from collections.abc import Callable, Mapping

from consilia.core.errors import PlanError
from consilia.dp.accountant import Bound, bound
from consilia.dp.calibrate import noise_multiplier
from consilia.dp.event import AnyEvent
from consilia.plan.events import evaluation_event, evaluations
from consilia.plan.exposure import Exposure, Part, cut_delta, exposed, exposure_of, shares_against
from consilia.plan.phases import Phase, first_rounds
from consilia.plan.phases import phases as phases_of
from consilia.plan.rules_privacy import against
from consilia.plan.run_plan import ADVERSARIES, Charge, SiteTerms
from consilia.plan.schedule import Schedule
from consilia.plan.schema import Plan
from consilia.plan.terms import site_terms

_Composition = tuple[tuple[AnyEvent, int], ...]
_Parts = dict[str, tuple[Part, ...]]


def charges(
    plan: Plan, phases: tuple[Phase, ...], sites: tuple[SiteTerms, ...], z: float, *, cohort: int, dim: int
) -> dict[str, Charge]:
    """Return what each site may be charged at noise multiplier `z`, and its bound against each adversary.

    Args:
        plan: The plan.
        phases: Its phases.
        sites: Every site's terms.
        z: The noise multiplier.
        cohort: Sites that a round asks, the most of any round.
        dim: Coordinates of the vector that the learner hands over.

    Raises:
        PlanError: If the batch cap is so small that cut batches use up delta.

    Guarantees:
        Each epsilon holds together with the plan's delta: the part of delta that batches cut at their cap may cost
        is taken off before the accountant is asked. It covers the whole schedule: stopping early earns nothing. A
        phase without noise releases clipped sums as they are, so then no epsilon holds for the run. Where sites add shares
        of the noise, each adversary's bound counts on the shares it cannot know; the ledger books the one claimed against.
    """
    if plan.privacy.unit == "none":
        nothing = Charge((None,) * len(phases), None, 0, dict.fromkeys(ADVERSARIES), 0.0, "none")
        return {terms.name: nothing for terms in sites}
    parts = exposed(phases, sites, cohort=cohort, dim=dim)
    shares = {who: shares_against(plan, who, cohort) for who in ADVERSARIES}
    claimed = shares[against(plan)] or 1
    if any(phase.noise_scale == 0 for phase in phases):
        void = Bound(math.inf, "none", math.inf, math.inf)
        shares, priced = (
            dict.fromkeys(ADVERSARIES),
            {claimed: (dict.fromkeys(map(exposure_of, parts.values()), void), 0.0)},
        )
    else:
        priced = {count: _bounds(plan, parts, z, count) for count in {claimed, *shares.values()} if count is not None}
    found = {}
    for site, each in parts.items():
        exposure = exposure_of(each)
        bounds, extra = priced[claimed]
        found[site] = Charge(
            round_events=tuple(part.event(z, claimed) for part in each),
            evaluation_event=evaluation_event(plan),
            evaluations=evaluations(plan),
            epsilon={
                who: None if count is None else priced[count][0][exposure].epsilon for who, count in shares.items()
            },
            extra_delta=extra,
            accountant=bounds[exposure].accountant,
        )
    return found


def calibrate(plan: Plan, phases: tuple[Phase, ...], sites: tuple[SiteTerms, ...], *, cohort: int, dim: int) -> float:
    """Return the smallest noise multiplier at which every site's bound is at most `privacy.epsilon`.

    It is rounded up at the sixth digit, so that every machine names the same number.

    Args:
        plan: The plan.
        phases: Its phases.
        sites: Every site's terms.
        cohort: Sites that a round asks, the most of any round.
        dim: Coordinates of the vector that the learner hands over.

    Raises:
        PlanError: If no noise meets the target: batches cut too early, or evaluations that cost too much.
    """
    target = plan.privacy.epsilon or math.inf
    parts, shares = exposed(phases, sites, cohort=cohort, dim=dim), shares_against(plan, against(plan), cohort) or 1
    rest = (plan.privacy.delta or 0.0) - _cut(plan, parts, target)
    _evaluations_fit(plan, target, rest)
    # The most exposed and the most turns first: the others then pass without a search of their own.
    distinct = sorted(
        {exposure_of(each): each for each in parts.values()}.values(),
        key=lambda each: (min(part.cover for part in each), -sum(part.turns * part.steps for part in each)),
    )
    z = 0.0
    for each in distinct:
        make = _composer(plan, each, shares)
        if any(part.turns for part in each) and (z == 0.0 or bound(make(z), rest).epsilon > target):
            z = _rounded_up(noise_multiplier(epsilon=target, delta=rest, make=make))
    while z and any(bound(_composer(plan, each, shares)(z), rest).epsilon > target for each in distinct):
        z = _rounded_up(z * (1.0 + 1e-5))  # an accountant's grid may move with z by a hair
    return z


def affordable(plan: Plan, counts: Mapping[str, int], schedule: Schedule, *, cohort: int, dim: int) -> int:
    """Return how many of the scheduled rounds `privacy.epsilon` pays for at the plan's own noise multiplier.

    Args:
        plan: The plan.
        counts: Registered rows of each site.
        schedule: Who is asked when.
        cohort: Sites that a round asks, the most of any round.
        dim: Coordinates of the vector that the learner hands over.

    Raises:
        PlanError: If it does not pay for one.

    Guarantees:
        The charges of that many rounds, and of the evaluations in them, are bounded by the target at every site. The
        number follows from public numbers, so where a run stops tells nothing.
    """
    z, target = plan.privacy.noise_multiplier or 0.0, plan.privacy.epsilon or math.inf

    def fits(rounds: int) -> bool:
        cut = first_rounds(plan, rounds)
        parts = phases_of(cut)
        try:
            charged = charges(cut, parts, site_terms(cut, parts, counts, schedule[:rounds]), z, cohort=cohort, dim=dim)
        except PlanError:  # at so large an epsilon cut batches use up delta
            return False
        bounds = [charge.epsilon[against(plan)] for charge in charged.values()]
        return all(value is None or value <= target for value in bounds)

    low, high = 0, len(schedule)
    if fits(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    if low == 0:
        raise PlanError.of(
            "plan key privacy.noise_multiplier", needs=f"enough noise for one round at privacy.epsilon = {target:g}",
            got=f"{z:g}", hint="Raise it, or leave one of the two out",
        )  # fmt: skip
    return low


def _composer(plan: Plan, parts: tuple[Part, ...], shares: int) -> Callable[[float], _Composition]:
    scored = evaluation_event(plan)
    # A held-out row is in no batch and a training row in no score: adding both is more than either can lose.
    tail: _Composition = () if scored is None else ((scored, evaluations(plan)),)

    def make(z: float) -> _Composition:
        return (*((part.event(z, shares), part.turns) for part in parts), *tail)

    return make


def _bounds(plan: Plan, parts: _Parts, z: float, shares: int) -> tuple[dict[Exposure, Bound], float]:
    """Return each exposure's bound and the delta spent on cut batches, which is priced at the largest epsilon."""
    delta, priced_at = plan.privacy.delta or 0.0, plan.privacy.epsilon or 0.0
    distinct = {exposure_of(each): each for each in parts.values()}
    while True:
        extra = _cut(plan, parts, priced_at)
        found = {
            exposure: bound(_composer(plan, each, shares)(z), delta - extra) for exposure, each in distinct.items()
        }
        largest = max(item.epsilon for item in found.values())
        # The price grows with epsilon and epsilon with the price: go up until the price covers its result.
        if not math.isfinite(largest) or _cut(plan, parts, largest) <= extra:
            return found, extra
        priced_at = largest * (1.0 + 1e-6)


def _cut(plan: Plan, parts: _Parts, epsilon: float) -> float:
    """Return the largest part of delta that cut batches cost any site, over all phases.

    Raises:
        PlanError: If that is half of delta or more.
    """
    delta = plan.privacy.delta or 0.0
    cuts = plan.privacy.within_site and plan.training.batch == "poisson"  # at every rate, 1 included
    each = {tuple(part.draws for part in site) for site in parts.values()} if cuts else set()
    spent = max((math.fsum(cut_delta(draw, epsilon) for draw in draws) for draws in each), default=0.0)
    if spent > 0 and spent >= delta / 2:
        raise PlanError.of(
            "plan key training.batch_cap",
            needs=f"a cap so rarely reached that cut batches cost at most half of delta = {delta:g}",
            got=f"a cost of {spent:.2g} at epsilon {epsilon:.3g}",
            hint="Raise or remove training.batch_cap, or ask for a smaller epsilon",
        )
    return spent


def _evaluations_fit(plan: Plan, target: float, delta: float) -> None:
    scored = evaluation_event(plan)
    if scored is None:
        return
    cost = bound(((scored, evaluations(plan)),), delta).epsilon
    if cost >= target:
        raise PlanError.of(
            "plan key evaluation.noise_multiplier",
            needs=f"evaluations that cost less than privacy.epsilon = {target:g}",
            got=f"{evaluations(plan)} evaluations that cost {cost:.3g} alone",
            hint="Raise it, or evaluate less often with evaluation.every",
        )


def _rounded_up(z: float) -> float:
    scale = 10.0 ** (5 - math.floor(math.log10(z)))
    return math.ceil(z * scale) / scale
