"""What each site's records may be charged, and the noise that keeps the largest of those bounds at the target."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from consilia.core.errors import PlanError
from consilia.dp.accountant import Bound, bound
from consilia.dp.calibrate import noise_multiplier
from consilia.dp.event import Event
from consilia.dp.truncation import truncation_delta
from consilia.plan.events import evaluation_event, evaluations, ratios, round_event, sampling_rate
from consilia.plan.run_plan import ADVERSARIES, Charge, SiteTerms
from consilia.plan.schema import Plan

_SERVER_SIDE = ("server", "server+colluding-sites")
_Composition = tuple[tuple[Event, int], ...]


@dataclass(frozen=True)
class _Exposure:
    """What tells one site's composition from another's; sites of equal exposure have equal bounds."""

    ratio: float
    steps: int
    turns: int


def charges(plan: Plan, sites: tuple[SiteTerms, ...], z: float) -> dict[str, Charge]:
    """Return what each site may be charged at noise multiplier `z`, and its bound against each adversary.

    Raises:
        PlanError: If the batch cap is so small that cut batches use up delta.

    Guarantees:
        Each epsilon holds together with the plan's delta: the part of delta that batches cut at their cap may cost
        is taken off before the accountant is asked. It covers the whole schedule: stopping early earns nothing.
    """
    if plan.privacy.unit == "none":
        nothing = Charge(None, None, 0, dict.fromkeys(ADVERSARIES), 0.0, "none")
        return {terms.name: nothing for terms in sites}
    hidden = _SERVER_SIDE if plan.privacy.noise == "server" else ()
    exposures = _exposures(plan, sites)
    bounds, extra = _bounds(plan, sites, set(exposures.values()), z)
    found = {}
    for site, exposure in exposures.items():
        event = round_event(plan, z, exposure.steps, exposure.ratio)
        epsilon = bounds[exposure].epsilon
        found[site] = Charge(
            round_event=event,
            evaluation_event=evaluation_event(plan),
            evaluations=evaluations(plan),
            epsilon={who: None if who in hidden else epsilon for who in ADVERSARIES},
            extra_delta=extra,
            accountant=bounds[exposure].accountant,
        )
    return found


def calibrate(plan: Plan, sites: tuple[SiteTerms, ...]) -> float:
    """Return the smallest noise multiplier at which every site's bound is at most `privacy.epsilon`.

    It is rounded up at the sixth digit, so that every machine names the same number.

    Raises:
        PlanError: If no noise meets the target: batches cut too early, or evaluations that cost too much.
    """
    target = plan.privacy.epsilon or math.inf
    rest = (plan.privacy.delta or 0.0) - _cut(plan, sites, target)
    _evaluations_fit(plan, target, rest)
    # The least ratio and the most turns first: the others then pass without a search of their own.
    exposures = sorted(set(_exposures(plan, sites).values()), key=lambda item: (item.ratio, -item.turns * item.steps))
    z = 0.0
    for exposure in exposures:
        make = _composer(plan, exposure)
        if exposure.turns and (z == 0.0 or bound(make(z), rest).epsilon > target):
            z = _rounded_up(noise_multiplier(epsilon=target, delta=rest, make=make))
    while z and any(bound(_composer(plan, exposure)(z), rest).epsilon > target for exposure in exposures):
        z = _rounded_up(z * (1.0 + 1e-5))  # an accountant's grid may move with z by a hair
    return z


def _composer(plan: Plan, exposure: _Exposure) -> Callable[[float], _Composition]:
    scored = evaluation_event(plan)
    # A held-out row is in no batch and a training row in no score: adding both is more than either can lose.
    tail: _Composition = () if scored is None else ((scored, evaluations(plan)),)

    def make(z: float) -> _Composition:
        return ((round_event(plan, z, exposure.steps, exposure.ratio), exposure.turns), *tail)

    return make


def _bounds(
    plan: Plan, sites: tuple[SiteTerms, ...], exposures: set[_Exposure], z: float
) -> tuple[dict[_Exposure, Bound], float]:
    """Return each exposure's bound and the delta spent on cut batches, which is priced at the largest epsilon."""
    delta, priced_at = plan.privacy.delta or 0.0, plan.privacy.epsilon or 0.0
    while True:
        extra = _cut(plan, sites, priced_at)
        found = {exposure: bound(_composer(plan, exposure)(z), delta - extra) for exposure in exposures}
        largest = max(item.epsilon for item in found.values())
        # The price grows with epsilon and epsilon with the price: go up until the price covers its result.
        if not math.isfinite(largest) or _cut(plan, sites, largest) <= extra:
            return found, extra
        priced_at = largest * (1.0 + 1e-6)


def _cut(plan: Plan, sites: tuple[SiteTerms, ...], epsilon: float) -> float:
    """Return the largest part of delta that cut batches cost any site.

    Raises:
        PlanError: If that is half of delta or more.
    """
    rate, delta = sampling_rate(plan), plan.privacy.delta or 0.0
    cuts = plan.privacy.unit == "record" and plan.training.batch == "poisson"  # at every rate, 1 included
    draws = {(terms.count, terms.batch_cap, terms.steps * terms.participations) for terms in sites}
    spent = max(
        (
            truncation_delta(count, rate, cap, steps, epsilon)
            for count, cap, steps in draws
            if cuts and cap < count and steps
        ),
        default=0.0,
    )
    if spent >= delta / 2:
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


def _exposures(plan: Plan, sites: tuple[SiteTerms, ...]) -> dict[str, _Exposure]:
    ratio = ratios(plan, sites)
    return {terms.name: _Exposure(ratio[terms.name], terms.steps, terms.participations) for terms in sites}


def _rounded_up(z: float) -> float:
    scale = 10.0 ** (5 - math.floor(math.log10(z)))
    return math.ceil(z * scale) / scale
