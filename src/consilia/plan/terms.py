"""Each site's public numbers: rows, weight, turns, and what one turn of work is."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from consilia.dp.truncation import default_batch_cap
from consilia.plan.phases import Phase
from consilia.plan.run_plan import PhaseTerms, SiteTerms
from consilia.plan.schedule import Schedule, inclusions
from consilia.plan.schema import Plan
from consilia.plan.weights import weights


def passes(plan: Plan) -> int | None:
    """Return how often one round goes through a site's rows, or None where the plan counts steps."""
    training = plan.training
    if training.algorithm == "fedsgd" or training.local_steps is not None:
        return None
    return training.local_epochs or 1


def batches_in_a_pass(plan: Plan, count: int) -> int:
    """Return how many batches one pass over `count` rows takes; Poisson: 1/q, rounded up, a public number."""
    training = plan.training
    if training.batch == "poisson":
        return math.ceil(1.0 / (training.sampling_rate or 1.0) - 1e-9)
    if training.batch == "fixed":
        return math.ceil(count / (training.batch_size or count))
    return 1


def steps_a_round(plan: Plan, count: int) -> int:
    """Return a site's local steps in one round; fedsgd sends one gradient."""
    if plan.training.algorithm == "fedsgd":
        return 1
    if plan.training.local_steps is not None:
        return plan.training.local_steps
    return (passes(plan) or 1) * batches_in_a_pass(plan, count)


def site_terms(
    plan: Plan, phases: Sequence[Phase], counts: Mapping[str, int], schedule: Schedule
) -> tuple[SiteTerms, ...]:
    """Return every site's terms, in order of name.

    Args:
        plan: A plan that breaks no rule.
        phases: Its phases.
        counts: Registered rows of each site, or patients where they are the unit.
        schedule: Who is asked when.
    """
    share, weight = inclusions(plan.aggregation, counts), weights(plan.aggregation, counts)
    turns = [_turns(phase, counts, schedule) for phase in phases]
    if (most := most_participations(plan)) is not None:  # without phases: nobody knows beforehand who is ready in which
        turns = [dict.fromkeys(counts, most)]
    found = []
    for site in sorted(counts):
        each = tuple(
            _phase_terms(phase.plan, counts[site], asked[site]) for phase, asked in zip(phases, turns, strict=True)
        )
        found.append(SiteTerms(site, counts[site], weight[site], share[site], each))
    return tuple(found)


def most_participations(plan: Plan) -> int | None:
    """Return how many updates a site may begin in a run whose rounds wait for no one; None where the schedule says it."""
    rule, rounds = plan.aggregation, plan.training.rounds
    return None if rule.mode == "synchronous" else min(rule.max_participations or rounds, rounds)


def _turns(phase: Phase, counts: Mapping[str, int], schedule: Schedule) -> dict[str, int]:
    turns = dict.fromkeys(counts, 0)
    for asked, times in Counter(schedule[phase.first - 1 : phase.last]).items():
        for site in asked:
            turns[site] += times
    return turns


def _phase_terms(plan: Plan, count: int, turns: int) -> PhaseTerms:
    steps = steps_a_round(plan, count)
    expected, cap = _batch(plan, count, steps * turns)
    return PhaseTerms(turns, expected, cap, steps)


def _batch(plan: Plan, count: int, draws: int) -> tuple[float, int]:
    """Return the public normaliser of a step and the largest batch."""
    training, private = plan.training, plan.privacy.within_site
    if training.batch == "full":
        return (float(count) if private else 0.0), count
    if training.batch == "fixed":
        size = training.batch_size or count
        return (float(size) if private else 0.0), size
    rate = training.sampling_rate or 1.0
    if not private:
        return 0.0, min(training.batch_cap or count, count)
    cap = training.batch_cap or default_batch_cap(count, rate, max(draws, 1), plan.privacy.delta or 1e-5)
    return rate * count, min(cap, count)
