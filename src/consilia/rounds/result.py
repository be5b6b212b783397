"""What a run comes to: the numbers printed at its end and kept beside the model."""

from collections.abc import Mapping

from consilia.core.canonical import Json
from consilia.core.version import VERSION
from consilia.plan.phases import total_rounds
from consilia.plan.run_plan import ADVERSARIES, RunPlan
from consilia.rounds.records import RoundRecord
from consilia.rounds.state import TrainingState


def epsilon_against(plan: RunPlan) -> dict[str, Json]:
    """Return the largest bound over sites for each adversary; None where one site has none, or the run claims none."""
    table: dict[str, Json] = {}
    for adversary in ADVERSARIES:
        values = [charge.epsilon.get(adversary) for charge in plan.charges.values()]
        known = [value for value in values if value is not None]
        claims = plan.epsilon is not None and len(known) == len(values) and known
        table[adversary] = max(known) if claims else None
    return table


def binding_accountant(plan: RunPlan) -> str:
    """Return the accountant that gave the largest bound over sites: the one that the run's epsilon comes from."""
    binding = max(plan.charges.values(), key=lambda charge: charge.epsilon.get(plan.against) or 0.0)
    return binding.accountant


def summary(
    plan: RunPlan, state: TrainingState, final: RoundRecord, *, run: str, status: str, heads: Mapping[str, str]
) -> dict[str, Json]:
    """Return the fixed form that scripts read, and what the privacy card adds to it.

    `epsilon` is the bound of the whole schedule: stopping early on what the data showed earns no discount.
    """
    privacy = plan.plan.privacy
    return {
        "run": run,
        "status": status,
        "reason": state.stopped or _paid(plan),
        "accuracy": final.accuracy,
        "accuracy_mean_over_sites": final.accuracy_mean_over_sites,
        "accuracy_variance": final.accuracy_variance,
        "loss": final.loss,
        "per_site": {
            site: score if not isinstance(score, dict) else {**score, "n_train": _count(plan, site)}
            for site, score in final.per_site.items()
        },
        "epsilon": plan.epsilon,
        "epsilon_against": epsilon_against(plan),
        "against": plan.against,
        "delta": plan.delta,
        "unit": privacy.unit,
        "adjacency": str(plan.adjacency),
        "accountant": binding_accountant(plan),
        "noise_multiplier": plan.noise_multiplier,
        "rounds": state.round,
        "skipped": state.skipped,
        "bytes_up": state.bytes_up,
        "bytes_down": state.bytes_down,
        "seconds": state.seconds,
        "reproducible": plan.plan.run.reproducible,
        "warnings": list(plan.warnings),
        "ledger_heads": dict(heads),
        "plan_digest": plan.digest,
        "software": f"Consilia {VERSION}",
    }


def _paid(plan: RunPlan) -> str | None:
    """Return that the budget ended the run, where it did."""
    agreed, ran = total_rounds(plan.plan), len(plan.schedule)
    return f"the budget pays for {ran} of the {agreed} rounds" if ran < agreed else None


def _count(plan: RunPlan, site: str) -> int:
    return next(terms.count for terms in plan.sites if terms.name == site)
