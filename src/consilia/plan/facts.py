"""What a checked plan says, as plain values: all that the privacy card and `consilia check` read."""

import math
from typing import TypedDict

from consilia.core.canonical import Json
from consilia.core.update import ProtocolMessage, Release
from consilia.core.version import VERSION
from consilia.core.wire import encode
from consilia.plan.notices import initial_source
from consilia.plan.phases import Phase
from consilia.plan.run_plan import ADVERSARIES, RunPlan
from consilia.plan.schema import Plan


class PhaseFacts(TypedDict):
    """What one phase does.

    `noise_multiplier` is 0 without noise and None where a stack's noise has none; `sampling_rate` None where batches are no
    Poisson sample.
    """

    first: int
    last: int
    train: str
    noise_multiplier: float | None
    clip_norm: float | None
    sampling_rate: float | None


class SitePhaseFacts(TypedDict):
    """One site's public numbers in one phase."""

    participations: int
    steps: int
    expected_batch: float
    batch_cap: int


class SiteFacts(TypedDict):
    """One site's public numbers; `epsilon` per adversary, None where nothing bounds it."""

    name: str
    count: int
    weight: float
    inclusion: float
    participations: int
    phases: list[SitePhaseFacts]
    extra_delta: float
    evaluations: int
    accountant: str
    epsilon: dict[str, float | None]


class StackFacts(TypedDict):
    """What each site answers once."""

    parts: str
    count: int
    noise: str
    row_bound: float
    ridge: float
    pull: float


class Facts(TypedDict):
    """A run's public numbers."""

    version: str
    digest: str
    unit: str
    adjacency: str
    noise: str
    against: str
    epsilon: float | None
    delta: float | None
    delta_reason: str | None
    accountant: str
    noise_multiplier: float
    clipping: str
    control_clip_norm: float | None
    reproducible: bool
    model: str
    initial_source: str | None
    algorithm: str
    batch: str
    views: int
    stack: StackFacts | None
    phases: list[PhaseFacts]
    selection: str
    cohort: int
    weights: str
    metrics: str
    evaluation_noise_multiplier: float | None
    population: str
    max_epsilon: float | None
    parameters: int
    rounds: int
    sites: list[SiteFacts]
    warnings: list[str]


class Forecast(TypedDict):
    """Bytes that a run will move; `up` is from sites to the coordinator, models sent for evaluation count in `down`."""

    vector: int
    up_per_round: int
    down_per_round: int
    up: int
    down: int
    busiest_site: int


def facts(plan: RunPlan) -> Facts:
    """Return a checked plan's numbers as plain values."""
    config = plan.plan
    privacy, training = config.privacy, config.training
    return {
        "version": VERSION,
        "digest": plan.digest,
        "unit": privacy.unit,
        "adjacency": str(plan.adjacency),
        "noise": privacy.noise,
        "against": plan.against,
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "delta_reason": privacy.delta_reason,
        "accountant": _accountants(plan),
        "noise_multiplier": plan.noise_multiplier,
        "clipping": privacy.clipping,
        "control_clip_norm": privacy.control_clip_norm,
        "reproducible": config.run.reproducible,
        "model": "stack" if training.algorithm == "stacking" else config.model.name,
        "initial_source": initial_source(config),
        "algorithm": training.algorithm,
        "batch": training.batch,
        "views": training.views if training.augment != "none" else 0,
        "stack": _stack(config),
        "phases": [_phase(plan, phase) for phase in plan.phases],
        "selection": config.aggregation.selection,
        "cohort": max((len(asked) for asked in plan.schedule), default=0),
        "weights": config.aggregation.weights,
        "metrics": config.evaluation.metrics,
        "evaluation_noise_multiplier": config.evaluation.noise_multiplier,
        "population": plan.population,
        "max_epsilon": config.ledger.max_epsilon,
        "parameters": plan.spec.dim,
        "rounds": len(plan.schedule),
        "sites": [_site(plan, index) for index in range(len(plan.sites))],
        "warnings": list(plan.warnings),
    }


def forecast(plan: RunPlan) -> Forecast:
    """Return the bytes a run will move, from public numbers; within a few percent where every site answers."""
    name = max((terms.name for terms in plan.sites), key=len, default="")
    number, evaluation = len(plan.schedule), plan.plan.evaluation
    vector = 4 * plan.spec.dim  # float32, both ways: with SCAFFOLD the control variate travels beside the model
    task: dict[str, Json] = {"plan": plan.digest, "run": "x" * 32, "counted": number}
    down = vector + len(encode(ProtocolMessage("evaluate", name, number, task)))
    charged = any(charge.booked for charge in plan.charges.values())
    beside: dict[str, Json] = {"charges": number, "ledger_head": plan.digest} if charged else {"loss": 1 / 3}
    up = vector + len(encode(Release(b"", name, number, plan.digest, plan.digest, beside)))
    score: dict[str, Json] = {"n": 1000, "accuracy": 1 / 3, "loss": 1 / 3}
    told = len(encode(Release(b"", name, number, plan.digest, plan.digest, score)))
    asked = sum(len(cohort) for cohort in plan.schedule)
    scores = 0 if evaluation.metrics == "hidden" else number // evaluation.every + 1
    scored = scores * len(plan.sites)
    busiest = max((terms.participations for terms in plan.sites), default=0)
    total_up, total_down = up * asked + told * scored, down * (asked + scored)
    return {
        "vector": vector,
        "up_per_round": total_up // max(number, 1),
        "down_per_round": total_down // max(number, 1),
        "up": total_up,
        "down": total_down,
        "busiest_site": (up + down) * busiest + (told + down) * scores,
    }


def _accountants(plan: RunPlan) -> str:
    return "; ".join(sorted({charge.accountant for charge in plan.charges.values()} - {"none"})) or "none"


def _stack(plan: Plan) -> StackFacts | None:
    if plan.training.algorithm != "stacking":
        return None
    stack = plan.stack
    return {
        "parts": stack.parts,
        "count": stack.count or 1,
        "noise": "Gaussian" if plan.privacy.delta else "radial",
        "row_bound": stack.row_bound,
        "ridge": stack.ridge,
        "pull": stack.pull,
    }


def _phase(plan: RunPlan, phase: Phase) -> PhaseFacts:
    training, privacy = phase.plan.training, phase.plan.privacy
    return {
        "first": phase.first,
        "last": phase.last,
        "train": phase.train,
        "noise_multiplier": None if training.algorithm == "stacking" else plan.noise_multiplier * phase.noise_scale,
        "clip_norm": privacy.clip_norm,
        "sampling_rate": training.sampling_rate if training.batch == "poisson" else None,
    }


def _site(plan: RunPlan, index: int) -> SiteFacts:
    terms = plan.sites[index]
    charge = plan.charges[terms.name]
    claims = plan.epsilon is not None
    return {
        "name": terms.name,
        "count": terms.count,
        "weight": terms.weight,
        "inclusion": terms.inclusion,
        "participations": terms.participations,
        "phases": [
            {
                "participations": phase.participations,
                "steps": phase.steps,
                "expected_batch": phase.expected_batch,
                "batch_cap": phase.batch_cap,
            }
            for phase in terms.phases
        ],
        "extra_delta": charge.extra_delta,
        "evaluations": charge.evaluations,
        "accountant": charge.accountant,
        # What the ledger books is no claim where the run makes none (reproducible mode).
        "epsilon": {who: _finite(charge.epsilon.get(who)) if claims else None for who in ADVERSARIES},
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
