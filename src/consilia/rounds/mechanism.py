"""What one answer of a site does to its unit of privacy, read from the parts that run, and held against what is charged."""

import math
from dataclasses import replace

from consilia.core.errors import PlanError
from consilia.core.spec import Adjacency, Unit
from consilia.dp.event import AnyEvent, DiscreteGaussianEvent, EpsilonDeltaEvent, Event
from consilia.learning.work import LocalWork
from consilia.pipeline.chain import Chain
from consilia.pipeline.grid import rounded_l2
from consilia.pipeline.share import NoiseShare
from consilia.plan.phases import Phase
from consilia.plan.run_plan import SiteHalf


def event_that_runs(
    unit: Unit, work: LocalWork, chain: Chain, *, own: float, units: int, heaviest: float = 1.0
) -> Event | DiscreteGaussianEvent | None:
    """Return the mechanism of one answer, or None where nothing is protected.

    Args:
        unit: The unit of privacy.
        work: What the learner will do: it draws the noise at the site that protects records or patients.
        chain: The pipeline: it draws all other noise.
        own: Bound on how far one unit of this site moves the weighted sum.
        units: The records or patients that the site trains on: a pass over them takes as many batches as they fill.
        heaviest: The largest weight of any site: what `own` is divided by before it becomes an integer.

    Returns:
        Its noise multiplier is 0 where a phase clips and adds no noise.
    """
    if unit is Unit.NONE:
        return None
    share = chain.share
    if share is not None:
        return _shared(unit, work, chain, share, own / heaviest)
    z = work.noise_multiplier if work.noise_multiplier > 0 else chain.noise_multiplier(own) or 0.0
    if unit is Unit.SITE:
        return Event(z, adjacency=Adjacency.ZERO_OUT)
    if work.batch == "fixed":
        # A unit's old and new value lie in the same batch once a pass; replacing one by the other moves that sum by 2 C.
        batches = math.ceil(units / (work.batch_size or units))
        uses = work.steps // batches if work.steps % batches == 0 else work.steps
        return Event(z / 2.0, 1.0, uses, Adjacency.REPLACE_ONE)
    return Event(z, _rate(work), work.steps, Adjacency.ADD_REMOVE)


def _shared(unit: Unit, work: LocalWork, chain: Chain, share: NoiseShare, own: float) -> DiscreteGaussianEvent:
    """Return the mechanism of one sum of integers; `own` is what one unit adds to the weighted vector (l2)."""
    replaces = unit.within_site and work.batch == "fixed"
    moved = rounded_l2(own * chain.stretch * (2.0 if replaces else 1.0), chain.scale, chain.sent, chain.rounding)
    adjacency = Adjacency.ZERO_OUT if unit is Unit.SITE else Adjacency.REPLACE_ONE if replaces else Adjacency.ADD_REMOVE
    rate = _rate(work) if unit.within_site else 1.0
    return DiscreteGaussianEvent(share.share_variance, share.shares, moved, chain.sent, rate, adjacency=adjacency)


def _rate(work: LocalWork) -> float:
    return work.sampling_rate if work.batch == "poisson" and work.sampling_rate is not None else 1.0


def require_covered(half: SiteHalf, phase: Phase, runs: AnyEvent | None) -> None:
    """Refuse to start a site whose ledger would book less than what it runs in a phase.

    Raises:
        PlanError: If noise, sampling, steps, adjacency, or epsilon and delta of what runs exceed what the plan charges.
    """
    charged = half.charge.round_events[phase.index]
    if half.plan.privacy.unit == "none" and charged is None and runs is None:
        return
    if charged is None or runs is None or not _covers(charged, runs):
        raise PlanError.of(
            f"site {half.terms.name}",
            needs=f"a charge for what it runs, {runs}",
            got=f"{charged}",
            hint="This is a fault of the software, not of the plan: nothing was computed; please report it",
        )


def _covers(charged: AnyEvent, runs: AnyEvent) -> bool:
    if isinstance(charged, EpsilonDeltaEvent) or isinstance(runs, EpsilonDeltaEvent):
        return (
            isinstance(charged, EpsilonDeltaEvent)
            and isinstance(runs, EpsilonDeltaEvent)
            and charged.adjacency is runs.adjacency
            and charged.epsilon >= runs.epsilon
            and charged.delta >= runs.delta
        )
    if isinstance(charged, DiscreteGaussianEvent) and isinstance(runs, DiscreteGaussianEvent):
        return charged.covers(replace(runs, l2=runs.l2 / (1.0 + 1e-12)))  # multiplied in another order
    if isinstance(charged, DiscreteGaussianEvent) or isinstance(runs, DiscreteGaussianEvent):
        return False
    slack = 1.0 + 1e-9  # the plan rounds a ratio of weights down at the twelfth digit
    return (
        charged.adjacency is runs.adjacency
        and charged.noise_multiplier <= runs.noise_multiplier * slack
        and charged.sampling_rate >= runs.sampling_rate
        and charged.steps >= runs.steps
    )
