"""Registered numbers of rows against what the sites hold: which counts are public, and whether they hold good."""

from collections.abc import Mapping

from consilia.core.errors import Problem
from consilia.plan.faults import nearest
from consilia.plan.phases import phases
from consilia.plan.rules_asynchronous import asynchronous_problems
from consilia.plan.schedule import cohort_size
from consilia.plan.schema import Plan
from consilia.plan.terms import batches_in_a_pass


def registered(plan: Plan, counts: Mapping[str, int]) -> tuple[dict[str, int], list[Problem]]:
    """Return the public number of training rows of each site, and what is wrong with it.

    Args:
        plan: A plan that breaks no rule.
        counts: Training rows that each site holds.
    """
    problems = [
        Problem(f"site {site}", "at least one training row", "none", "Leave it out, or change data.test_fraction")
        for site, count in counts.items()
        if count < 1
    ]
    if not counts:
        problems.append(Problem("the plan", "at least one site", "none", "Check [sites] and the data"))
    stated = plan.sites.counts
    if not isinstance(stated, dict):
        return dict(counts), problems
    for site in sorted(set(stated) - set(counts)):
        guess = nearest(site, counts)
        hint = f"Did you mean {guess}?" if guess else f"Sites are: {', '.join(sorted(counts))}"
        problems.append(Problem(f"plan key sites.counts.{site}", "a site that takes part", "an unknown name", hint))
    for site in sorted(set(counts) - set(stated)):
        problems.append(
            Problem("plan key sites.counts", f"a number for site {site}", "none", "Register an upper bound for it")
        )
    for phase in phases(plan):  # each may have batches of its own size
        for site in sorted(set(counts) & set(stated)):
            problems += _bound_holds(phase.plan, site, stated[site], counts[site])
    problems = list(dict.fromkeys(problems))
    return {site: stated.get(site, count) for site, count in counts.items()}, problems


def _units(plan: Plan) -> str:
    return "patients" if plan.privacy.unit == "patient" else "training rows"


def _bound_holds(plan: Plan, site: str, stated: int, count: int) -> list[Problem]:
    # The true count is not printed: under a claim it is the site's own to tell.
    if stated < count:
        return [
            Problem(f"plan key sites.counts.{site}", f"an upper bound on the site's {_units(plan)}", f"{stated}, which is "
                    "fewer", "Raise it to a number the site will not pass")
        ]  # fmt: skip
    fixed = plan.privacy.within_site and plan.training.batch == "fixed" and count > 0
    if fixed and batches_in_a_pass(plan, stated) != batches_in_a_pass(plan, count):
        # A pass over fewer batches than charged would begin again and use some rows twice.
        return [
            Problem(f"plan key sites.counts.{site}", 'the exact number of rows with training.batch = "fixed"',
                    f"{stated}, which makes another number of batches",
                    'Register the exact count, or use training.batch = "poisson" or "full"')
        ]  # fmt: skip
    return []


def cohort_problems(plan: Plan, sites: int) -> list[Problem]:
    """Return what client sampling, rounds that wait for no one, or the quorum ask beyond the number of sites."""
    rule, problems = plan.aggregation, [*asynchronous_problems(plan, sites)]
    if rule.selection in ("count", "tilted") and (rule.count or 0) > sites:
        problems.append(
            Problem("plan key aggregation.count", f"at most the {sites} sites that take part", f"{rule.count}",
                    'Lower it, or use aggregation.selection = "all"')
        )  # fmt: skip
        return problems
    asked = cohort_size(rule, sites)
    limit = sites if asked is None else asked
    if rule.quorum > max(limit, 1):
        problems.append(
            Problem("plan key aggregation.quorum", f"at most the {limit} sites that a round asks", f"{rule.quorum:g}",
                    "Lower it, or give a share such as 0.7")
        )  # fmt: skip
    return problems
