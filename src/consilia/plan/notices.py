"""What a reader of the privacy card must know although nothing is forbidden; and the rule on delta."""

from collections.abc import Iterator, Mapping

from consilia.core.errors import Problem
from consilia.plan.phases import Phase, total_rounds
from consilia.plan.rules_data import BUILTIN
from consilia.plan.run_plan import SiteTerms
from consilia.plan.schema import Plan

USUAL_DELTA = 1e-5
_LARGE_EPSILON = 8.0


def delta_limit(counts: Mapping[str, int]) -> float:
    """Return the largest delta that needs no reason: a tenth of 1 / the smallest count, and at most 1e-5."""
    return min(0.1 / min(counts.values()), USUAL_DELTA)


def delta_problems(plan: Plan, counts: Mapping[str, int]) -> list[Problem]:
    """Refuse a delta above the limit without a reason."""
    delta = plan.privacy.delta
    if delta is None or not counts:
        return []
    site, count = min(counts.items(), key=lambda item: (item[1], item[0]))
    if delta > delta_limit(counts) and not (plan.privacy.delta_reason or "").strip():
        return [
            Problem("plan key privacy.delta", f"at most {delta_limit(counts):.2g} (the usual 1e-5, and a tenth of "
                    f"1 / {count}, the rows of site {site})", f"{delta:g}",
                    "Lower it, or state the reason in privacy.delta_reason: the privacy card prints it")
        ]  # fmt: skip
    return []


def warnings(
    plan: Plan, phases: tuple[Phase, ...], sites: tuple[SiteTerms, ...], epsilon: float | None, *, short: int = 0
) -> tuple[str, ...]:
    """Return the plan's warnings, each one sentence for the privacy card.

    Args:
        plan: The plan.
        phases: Its phases.
        sites: Every site's terms.
        epsilon: What the run claims.
        short: Rounds that ask too few sites for a secure sum.
    """
    found = [*_sampling(plan, len(sites)), *_phases(plan, phases), *_initial(plan), *_summed(plan, short)]
    if plan.run.reproducible:
        found.append("Reproducible mode: anyone can recompute the noise, so this run claims no epsilon.")
    if plan.privacy.unit != "none":
        found += _claim(plan, sites, epsilon)
    return tuple(found)


def _sampling(plan: Plan, sites: int) -> Iterator[str]:
    rule = plan.aggregation
    if rule.selection == "poisson":
        nobody = (1.0 - (rule.fraction or 1.0)) ** sites
        if nobody > 0.01:
            yield f"Poisson client sampling asks no site in about {nobody:.0%} of rounds; these are skipped."


def _summed(plan: Plan, short: int) -> Iterator[str]:
    mode = plan.secure_sum.mode
    if mode == "none":
        return
    if short:
        yield f"The schedule asks too few sites for a secure sum in {short} of its rounds: these are skipped."
    if plan.run.reproducible:
        yield "Reproducible mode: anyone can recompute what hides single updates, so the secure sum hides nothing."
    if mode == "paillier":
        yield "Every site holds the Paillier key: any one of them, together with the coordinator, can decrypt every update."


def _phases(plan: Plan, phases: tuple[Phase, ...]) -> Iterator[str]:
    agreed, run = total_rounds(plan), phases[-1].last
    if run < agreed:
        yield f"The budget pays for {run} of the {agreed} rounds: training ends before the round that would pass it."
    quiet = [phase for phase in phases if phase.noise_scale == 0]
    if quiet:
        spans = ", ".join(f"{phase.first} to {phase.last}" for phase in quiet)
        yield (
            f"Rounds {spans} add no noise, so no (epsilon, delta) holds for this run: what the other rounds add protects "
            "their own releases only. The ledgers book it without a bound, for good: no later run on this population is "
            "admitted under a limit."
        )


def initial_source(plan: Plan) -> str | None:
    """Return what the weights to start from were trained on, as the plan says it; None where it starts from none."""
    named = (plan.model.initial_source or "").strip()
    return None if plan.model.initial is None else named or "data that the plan does not name"


def _initial(plan: Plan) -> Iterator[str]:
    source = initial_source(plan)
    if source is not None:
        yield f"Training starts from weights of {source}: the claim does not cover the data they were trained on."


def _claim(plan: Plan, sites: tuple[SiteTerms, ...], epsilon: float | None) -> Iterator[str]:
    privacy, delta = plan.privacy, plan.privacy.delta or 0.0
    if privacy.noise == "server":
        yield "Noise is drawn at the server: nothing is promised against the server itself, alone or with sites."
    if epsilon is not None and epsilon > _LARGE_EPSILON:
        yield f"Epsilon {epsilon:.3g} is above {_LARGE_EPSILON:g}: a weak guarantee."
    limit = delta_limit({terms.name: terms.count for terms in sites})
    if delta > limit:
        yield f"Delta {delta:g} is above {limit:.2g}; the reason given: {(privacy.delta_reason or '').strip()}"
        if privacy.within_site and epsilon is not None:
            yield from _expected_failures(sites, delta, f"{privacy.unit}s")
    if privacy.unit == "patient":
        yield "A patient with rows at several sites is one unit at each: what they lose adds up over these sites."
    if privacy.within_site and plan.training.scaffold and all(phase.noise for phase in plan.phases):
        yield (
            f"SCAFFOLD at {privacy.unit} level: control variates are computed from privately trained models only, "
            "and carry their noise."
        )
    if plan.sites.counts == "public":
        yield f"The sites' numbers of rows are declared public{'' if epsilon is None else '; the claim does not hide them'}."
    if plan.evaluation.metrics == "public":
        yield "Metrics of held-out rows leave the sites without noise: their holders declare these rows public."
    if plan.evaluation.metrics == "charged":
        yield (
            f"Metrics are noised: each count of right and of wrong rows is off by about {plan.evaluation.noise_multiplier:g} "
            "rows at every site (one standard deviation), so accuracies of small sites say little."
        )
    if epsilon is not None:
        yield from _divided(plan)
    idle = [terms.name for terms in sites if not terms.participations]
    if idle:
        yield f"The schedule never asks: {', '.join(idle)}."
    thin = [terms.name for terms in sites if any(0.0 < phase.expected_batch < 1.0 for phase in terms.phases)]
    if thin:
        yield f"Poisson batches hold less than one {privacy.unit} on average at: {', '.join(thin)}."


def _expected_failures(sites: tuple[SiteTerms, ...], delta: float, units: str) -> Iterator[str]:
    smallest = min(sites, key=lambda terms: (terms.count, terms.name))
    largest = max(sites, key=lambda terms: (terms.count, terms.name))
    if delta * largest.count > 0.01:
        yield (
            f"Delta x {units} is {delta * smallest.count:.2g} at the smallest site, {smallest.name} ({smallest.count} to "
            f"train on), and {delta * largest.count:.2g} at the largest, {largest.name} ({largest.count}): the guarantee allows "
            f"a chance of up to that size that one of the site's {units} is exposed."
        )


def _divided(plan: Plan) -> Iterator[str]:
    if plan.data.source in BUILTIN or plan.sites.partition == "natural":
        return
    yield "Sites are simulated by dividing one table: the claim holds for each site's rows as divided."
