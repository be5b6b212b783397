"""Whether a search can be claimed at all, and every value be tried: found out before anything is charged."""

from collections.abc import Iterator
from pathlib import Path

from consilia.core.errors import PlanError, Problem
from consilia.dp.search import Events
from consilia.federation.simulation import prepare
from consilia.plan.rules_privacy import against
from consilia.plan.run_plan import RunPlan, SiteHalf
from consilia.plan.schema import Plan
from consilia.study import space
from consilia.study.space import Axis
from consilia.study.tune_file import TuneFile


def refusals(plan: Plan, tune: TuneFile) -> Iterator[Problem]:
    """Yield the reasons why a search of this plan can claim nothing."""
    privacy = plan.privacy
    if privacy.unit == "none":
        yield Problem("plan key privacy.unit", "a unit to protect", '"none"',
                      "Nothing would be charged: tune with --public, or by hand")  # fmt: skip
        return
    if plan.training.algorithm == "stacking":
        yield Problem("plan key training.algorithm", '"fedavg" or "fedsgd"', '"stacking"',
                      "A stack's noise follows other rules: try it on public rows, or take one value")  # fmt: skip
    if plan.secure_sum.mode != "none":
        yield Problem("plan key secure_sum.mode", '"none" in a search', f'"{plan.secure_sum.mode}"',
                      'Search in the clear with privacy.noise = "site", or on public rows with --public')  # fmt: skip
    if plan.run.reproducible:
        yield Problem("plan key run.reproducible", "false", "true", "Noise that anyone can recompute bounds nothing")
    if plan.evaluation.metrics == "hidden":
        yield Problem("plan key evaluation.metrics", '"public" or "charged": the best trial has to be told', '"hidden"',
                      "Score public held-out rows, or let each trial charge for its score")  # fmt: skip
    if plan.evaluation.metrics == "charged" and tune.score == "loss":
        yield Problem("tune key score", '"accuracy" with evaluation.metrics = "charged"', '"loss"',
                      "Only counts of right and wrong rows are released with noise")  # fmt: skip
    if (tune.epsilon or privacy.epsilon) is not None and privacy.noise_multiplier is not None:
        yield Problem("plan key privacy.noise_multiplier", "to be absent where the search has an epsilon",
                      f"{privacy.noise_multiplier:g}", "Leave it out: the noise follows from the epsilon")  # fmt: skip
    if any(not section.noise for section in plan.phases):
        yield Problem("plan section phases", "noise in every phase", "one without", "Without it no epsilon holds")
    if tune.distribution != "fixed" and against(plan) != "world":
        yield Problem(
            "plan key privacy.against",
            f'"world" with distribution = "{tune.distribution}": the bound for a random number of trials holds against those '
            "who see the winner and nothing else",
            f'"{against(plan)}", who sees every trial',
            'Set privacy.against = "world" if the coordinator is trusted (a single site coordinates itself), or '
            'distribution = "fixed", which charges every trial',
        )


def try_values(plan: Plan, axes: tuple[Axis, ...], data_folder: Path) -> None:
    """Check a plan for each value of each key, so that no trial is found impossible once the search is charged.

    Raises:
        PlanError: With every value that cannot be tried.
    """
    problems: list[Problem] = []
    expected = {name: half.events for name, half in halves(prepare(plan, data_folder).run_plan).items()}
    for axis in axes:
        if axis.key in space.COUNTED:
            continue
        for value in axis.probes:
            who = f"tune key search.{axis.key}"
            try:
                found = halves(prepare(space.with_values(plan, {axis.key: value}), data_folder).run_plan)
            except PlanError as error:
                problems += [
                    Problem(f"{who}: {problem.who}", problem.needs, problem.got, problem.hint)
                    for problem in error.problems
                ]
                continue
            if any(not same(half.events, expected[name]) for name, half in found.items()):
                problems.append(Problem(who, "values that leave a trial's charge as it is", f"{value!r}, which changes it",
                                        "Leave the key out of the search"))  # fmt: skip
    if problems:
        raise PlanError(problems)


def halves(plan: RunPlan) -> dict[str, SiteHalf]:
    """Return every site's half of a checked plan."""
    return {terms.name: plan.site(terms.name) for terms in plan.sites}


def same(one: Events, other: Events) -> bool:
    """Say whether two compositions are the same, in whatever order."""
    return sorted((event.digest, times) for event, times in one) == sorted(
        (event.digest, times) for event, times in other
    )
