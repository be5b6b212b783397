"""What a plan will do at one site, for the steward who decides: who, what, what leaves, what it costs, and what the policy says.

Every word comes from the plan as this site's installed code checked it; nothing is the coordinator's description.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from consilia.core.canonical import Json
from consilia.dp.ledger import Relation
from consilia.plan.clauses import Clause, Spent
from consilia.plan.consent import Verdict
from consilia.plan.facts import Facts, SiteFacts, facts
from consilia.plan.run_plan import ADVERSARIES, RunPlan, SiteHalf
from consilia.plan.sizes import exchange_bytes, update_bytes
from consilia.report.card import claim, who
from consilia.report.leaves import leaves
from consilia.report.mechanism import Group, Row
from consilia.report.numbers import bound, counted, plain, size
from consilia.report.protections import protections
from consilia.report.secure import secure_group

_SHOWN = 12
_ANSWERS: Mapping[str, str] = {
    "accepted": "the policy accepts this plan",
    "waiting": "the policy lets this plan through; it waits for a steward's approval",
    "refused": "the policy refuses this plan; an approval would change nothing",
}


@dataclass(frozen=True)
class Summary:
    """A plan before a steward.

    Attributes:
        run: Id of the run, as it was offered.
        digest: What an approval names: plan, registered counts, architecture and version.
        answer: accepted, waiting or refused.
        headline: What the answer means.
        claim: The guarantee in a line.
        groups: All else, line by line.
        clauses: The policy's, each beside what the plan asks.
        warnings: What the check of the plan warned of.
    """

    run: str
    digest: str
    answer: str
    headline: str
    claim: str
    groups: tuple[Group, ...]
    clauses: tuple[Clause, ...]
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Json]:
        """Return plain values."""
        return {
            "run": self.run, "digest": self.digest, "answer": self.answer, "headline": self.headline, "claim": self.claim,
            **{_key(group.title): {_key(row.label): _value(row) for row in group.rows} for group in self.groups},
            "policy": [
                {"key": clause.key, "allows": clause.allows, "asks": clause.asks, "holds": clause.holds}
                for clause in self.clauses
            ],
            "warnings": list(self.warnings),
        }  # fmt: skip


def summary(run: str, half: SiteHalf, run_plan: RunPlan, verdict: Verdict, spent: Spent, limit: float) -> Summary:
    """Return what a plan will do at a site.

    Args:
        run: Id of the run.
        half: The site's half of the plan.
        run_plan: The whole plan, as installed code checked it here.
        verdict: What the policy says.
        spent: What the data set's ledger holds, without this run.
        limit: The policy's limit for the data set; infinity without.
    """
    numbers = facts(run_plan)
    site = next(site for site in numbers["sites"] if site["name"] == half.terms.name)
    return Summary(
        run=run,
        digest=run_plan.digest,
        answer=verdict.answer,
        headline=_ANSWERS[verdict.answer],
        claim=claim(numbers),
        groups=(
            _plan(half, numbers),
            _turns(half, numbers, site, run_plan),
            leaves(numbers),
            *secure_group(numbers),
            protections(numbers),
            _guarantee(numbers, site),
            _budget(half, run_plan, spent, limit),
        ),
        clauses=verdict.weighed,
        warnings=tuple(numbers["warnings"]),
    )


def _plan(half: SiteHalf, numbers: Facts) -> Group:
    config, units = half.plan, "patients" if numbers["unit"] == "patient" else "training rows"
    names = [f"{site['name']} {plain(site['count'])}" for site in numbers["sites"]]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    columns = sorted({*config.data.numeric, *config.data.categories})
    rows = [
        Row("Sites", f"{len(names)}: {', '.join(names[:_SHOWN])}{more}", f"with their registered {units}"),
        Row(
            "Data set", half.population, f"from a {config.data.source} file" if config.data.path else "a built-in table"
        ),
    ]
    if columns:
        rows.append(Row("Columns", ", ".join(columns), f"to predict {config.data.label}"))
    rows.append(
        Row("Model", numbers["model"], f"{plain(numbers['parameters'])} numbers an update; built by installed code")
    )
    if numbers["initial_source"] is not None:
        rows.append(
            Row("Starts from", numbers["initial_source"], "weights that the coordinator sends; the digest names them")
        )
    return Group("The plan", tuple(rows))


def _turns(half: SiteHalf, numbers: Facts, site: SiteFacts, run_plan: RunPlan) -> Group:
    turns = site["participations"]
    steps = sorted({phase["steps"] for phase in site["phases"]})
    span = counted(steps[0], "step") if len(steps) == 1 else f"{plain(steps[0])} to {counted(steps[-1], 'step')}"
    up = update_bytes(run_plan) + exchange_bytes(run_plan, numbers["cohort"], entries=True).up
    scored = numbers["metrics"] != "hidden"
    rows = [
        Row("Rounds", plain(numbers["rounds"]), f"this site answers at most {plain(turns)} of them"),
        Row("Work in a turn", span, f"{numbers['algorithm']}, {numbers['batch']} batches"),
        Row("Bytes of an answer", size(up), f"{size(up * turns)} from this site over the whole run, without scores"),
        Row("Held-out rows", "scored" if scored else "not used", numbers["metrics"]),
    ]
    if half.plan.run.reproducible:
        rows.append(Row("Randomness", "public", "noise and batches follow from the seed: anyone can recompute them"))
    return Group("What this site does", tuple(rows))


def _guarantee(numbers: Facts, site: SiteFacts) -> Group:
    unit = numbers["unit"]
    if unit == "none":
        return Group("Guarantee for this site", (Row("Epsilon", "none", "the plan asks for no differential privacy"),))
    rows = [Row("For", f"one {unit}", f"{numbers['adjacency']}, at delta {bound(numbers['delta'], 6)}")]
    for adversary in ADVERSARIES:
        rows.append(Row(f"Epsilon against {adversary}", bound(site["epsilon"][adversary]), who(numbers, adversary)))
    return Group("Guarantee for this site", tuple(rows))


def _budget(half: SiteHalf, run_plan: RunPlan, spent: Spent, limit: float) -> Group:
    mine = Relation(half.adjacency, half.against)
    epsilon = half.charge.epsilon[half.against]
    run = math.inf if epsilon is None or half.plan.run.reproducible else epsilon
    before = spent.get(mine, (0.0, 0.0))[0]
    others = [f"{bound(value)} {relation}" for relation, (value, _) in spent.items() if relation != mine]
    if not half.charge.booked:
        return Group(
            "Budget of the data set", (Row("This run", "not booked", "no privacy is claimed, so no ledger counts it"),)
        )
    left = "no limit" if math.isinf(limit) else plain(max(0.0, limit - before - run)) if math.isfinite(run) else "none"
    return Group(
        "Budget of the data set",
        (
            Row(
                "So far",
                bound(before) if before else "0",
                f"epsilon {mine}, over all earlier runs on {half.population}",
            ),
            *([Row("And bounded otherwise", "; ".join(others), "which adds up with no other kind")] if others else []),
            Row("This run", bound(run), "booked before anything leaves, whether or not the run ends"),
            Row("Left after it", left, "" if math.isinf(limit) else f"of {plain(limit)}, the policy's limit"),
        ),
    )


def _key(title: str) -> str:
    return "_".join(title.lower().split()).replace("+", "_and_").replace("-", "_")


def _value(row: Row) -> str:
    return f"{row.value} ({row.note})" if row.note else row.value
