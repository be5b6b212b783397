"""Which mechanism a plan puts on each site's unit of privacy, as events an accountant reads.

Source: docs/guarantees.md, sections 3 to 5.
"""

import math
from collections.abc import Mapping, Sequence

from consilia.core.spec import Adjacency
from consilia.dp.event import AnyEvent, DiscreteGaussianEvent, EpsilonDeltaEvent, Event
from consilia.dp.sensitivity import effective_multiplier
from consilia.plan.phases import Phase, total_rounds
from consilia.plan.protection import protection_of
from consilia.plan.run_plan import SiteTerms
from consilia.plan.schema import Plan
from consilia.plan.secure import GridTerms
from consilia.plan.terms import passes


def adjacency_of(plan: Plan) -> Adjacency:
    """Return how neighbouring data sets differ.

    Fixed batches hide no row's presence (their number shows the count), so they protect a row's content:
    replace-one. Full and Poisson batches also hide whether it is there.
    """
    if plan.privacy.unit == "site":
        return Adjacency.ZERO_OUT
    if plan.privacy.within_site and plan.training.batch == "fixed":
        return Adjacency.REPLACE_ONE
    return Adjacency.ADD_REMOVE


def sampling_rate(plan: Plan) -> float:
    """Return the rate that amplifies: only a secret Poisson draw at the site, for its records or patients, counts."""
    if plan.privacy.within_site and plan.training.batch == "poisson":
        return plan.training.sampling_rate or 1.0
    return 1.0


def round_event(plan: Plan, z: float, steps: int, ratio: float) -> AnyEvent:
    """Return the mechanism of one answered round on a site's unit.

    Args:
        plan: A plan with a unit of privacy.
        z: The plan's noise multiplier.
        steps: Local steps a round.
        ratio: How many times the site's own largest contribution the noise was scaled for (noise at the server).

    Guarantees:
        Site unit: the whole clipped update is one release, whatever the number of local steps. Record and patient unit:
        every step is a release of a clipped sum (C), and a unit of a fixed batch is in one batch a pass, where replacing
        it moves the sum by 2C. Fixed batches are never amplified; without whole passes every step is charged. A stack is
        one release of the plan's own epsilon and delta.
    """
    if plan.training.algorithm == "stacking":
        return EpsilonDeltaEvent(plan.privacy.epsilon or 0.0, plan.privacy.delta or 0.0)
    adjacency, own = adjacency_of(plan), effective_multiplier(z, own=1.0, largest=ratio)
    if plan.privacy.unit == "site":
        return Event(own, adjacency=adjacency)
    if plan.training.batch == "fixed":
        return Event(own / 2.0, 1.0, passes(plan) or steps, adjacency)
    return Event(own, sampling_rate(plan), steps, adjacency)


def shared_event(plan: Plan, grid: GridTerms, shares: int, l2: float) -> AnyEvent:
    """Return the mechanism of one answered round on a site's unit where the noise is a sum of shares.

    Args:
        plan: A plan whose noise is distributed: it releases one sum a round.
        grid: The phase's integers, share of the noise included.
        shares: How many shares the adversary cannot subtract.
        l2: How far one unit of the site moves its integers.

    Guarantees:
        The sum of integers that is opened has the noise of at least so many shares, whatever else the adversary knows.
    """
    if not grid.share_variance:
        return Event(0.0, sampling_rate(plan), adjacency=adjacency_of(plan))
    return DiscreteGaussianEvent(
        grid.share_variance, shares, l2, grid.kept, sampling_rate(plan), adjacency=adjacency_of(plan)
    )


def evaluations(plan: Plan) -> int:
    """Return how many charged evaluations a run makes: each `every` rounds, and one of the model that is kept."""
    return total_rounds(plan) // plan.evaluation.every + 1 if plan.evaluation.metrics == "charged" else 0


def evaluation_event(plan: Plan) -> Event | None:
    """Return the mechanism of one charged evaluation: noise on the counts (right, wrong) of held-out rows.

    Guarantees:
        A row more or less moves one of the two by 1; replacing a row moves at most both by 1, an l2 distance of sqrt(2).
    """
    if plan.evaluation.metrics != "charged" or plan.evaluation.noise_multiplier is None:
        return None
    adjacency = adjacency_of(plan)
    moved = math.sqrt(2.0) if adjacency is Adjacency.REPLACE_ONE else 1.0
    return Event(plan.evaluation.noise_multiplier / moved, adjacency=adjacency)


def ratios(phase: Phase, sites: Sequence[SiteTerms]) -> Mapping[str, float]:
    """Return for each site how many times its own largest contribution the noise was scaled for, at least 1.

    Noise at the server is scaled for the largest weight x bound over all sites of the plan, so a site that
    contributes less is protected by more. Noise at the site fits the site.
    """
    if phase.plan.privacy.noise != "server":
        return {terms.name: 1.0 for terms in sites}
    protection = protection_of(phase, sites, 1.0, control_dim=0)  # a control variate scales all sites alike
    largest = protection.sum_sensitivity
    found = {}
    for site, weight in protection.weights.items():
        ratio = effective_multiplier(1.0, own=weight * protection.site_bound(site), largest=largest)
        # Cut at the twelfth digit: sites that differ by rounding alone then share one bound, and none gains by it.
        found[site] = math.floor(ratio * 1e12) / 1e12
    return found
