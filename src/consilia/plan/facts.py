"""What a checked plan says, as plain values: all that the privacy card and `consilia check` read."""

import math
from typing import TypedDict

from consilia.core.version import VERSION
from consilia.plan.notices import initial_source
from consilia.plan.phases import Phase
from consilia.plan.run_plan import ADVERSARIES, RunPlan
from consilia.plan.schedule import most_added
from consilia.plan.schema import Plan
from consilia.plan.secure_facts import MessageFacts, SecureFacts, message_facts, secure_facts


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


class AsynchronousFacts(TypedDict):
    """How rounds go that wait for no one: the steps that an update may be behind are `max_staleness`."""

    mode: str
    max_staleness: int


class Facts(TypedDict):
    """A run's public numbers."""

    version: str
    digest: str
    unit: str
    adjacency: str
    noise: str
    against: str
    secure: SecureFacts | None
    messages: MessageFacts
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
    asynchronous: AsynchronousFacts | None
    weights: str
    metrics: str
    evaluation_noise_multiplier: float | None
    population: str
    max_epsilon: float | None
    parameters: int
    rounds: int
    sites: list[SiteFacts]
    warnings: list[str]


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
        "secure": secure_facts(plan),
        "messages": message_facts(plan),
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
        "cohort": most_added(config.aggregation, plan.schedule),
        "asynchronous": _asynchronous(config),
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


def _accountants(plan: RunPlan) -> str:
    return "; ".join(sorted({charge.accountant for charge in plan.charges.values()} - {"none"})) or "none"


def _asynchronous(plan: Plan) -> AsynchronousFacts | None:
    rule = plan.aggregation
    return None if rule.mode == "synchronous" else {"mode": rule.mode, "max_staleness": rule.max_staleness}


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
