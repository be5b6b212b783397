"""Who is in a sum: by the public schedule, or whom the coordinator names where rounds wait for no one."""

from collections.abc import Callable

from consilia.core.canonical import Json
from consilia.core.errors import ProtocolError
from consilia.plan.run_plan import RunPlan
from consilia.plan.secure import SecureTerms
from consilia.rounds.secure.shape import UPDATE

Scheduled = Callable[[str, int], tuple[str, ...]]
Cohorts = Callable[[str, int, Json], tuple[str, ...]]
"""(purpose, round, whom the coordinator names) -> the cohort, ascending; empty where the round asks nobody for that."""


def by_schedule(plan: RunPlan) -> Scheduled:
    """Return the cohorts of the public schedule; scores are asked of every site."""
    everyone, rounds = tuple(sorted(terms.name for terms in plan.sites)), len(plan.schedule)

    def cohort(purpose: str, number: int) -> tuple[str, ...]:
        if purpose != UPDATE:
            return everyone if 0 < number <= rounds + 1 else ()  # the result is scored once more, after the last
        return tuple(sorted(plan.schedule[number - 1])) if 0 < number <= rounds else ()

    return cohort


def cohorts_of(plan: RunPlan, secure: SecureTerms, site: str) -> Cohorts:
    """Return what a site goes by: the schedule, or where rounds wait for no one a named cohort that it has checked.

    Guarantees:
        A named cohort is accepted if it has this site in it and, of the plan's other sites, each at most once; of an update
        at least as many as the plan's noise is sized for and at most as many as its ring has room for.
    """
    scheduled = by_schedule(plan)
    if plan.plan.aggregation.mode != "two-phase":
        return lambda purpose, number, _named: scheduled(purpose, number)

    def cohort(purpose: str, number: int, named: Json) -> tuple[str, ...]:
        able = scheduled(purpose, number)
        if not able:
            return ()
        most = secure.cohort if purpose == UPDATE else len(able)
        names = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
        sound = names == named and names == sorted(set(names) & set(able)) and site in names
        if not sound or not secure.fewest <= len(names) <= most:
            raise ProtocolError.of(
                f"site {site}", needs=f"a cohort of {secure.fewest} to {most} of the plan's sites, by name, with this one in it",
                got=f"{len(names)} of them" if names else "none",
                hint="The coordinator is broken or hostile: tell the consortium",
            )  # fmt: skip
        return tuple(names)

    return cohort
