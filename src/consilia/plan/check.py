"""Check a plan against its sites and its model: every number that follows, or every fault at once."""

import math
from collections.abc import Mapping, Sequence

from consilia.core.canonical import Json, digest
from consilia.core.errors import IllegalChain, PlanError, Problem
from consilia.core.randomness import SharedSeed
from consilia.core.spec import Segment, UpdateSpec
from consilia.core.version import VERSION
from consilia.pipeline.protection import learner_spec
from consilia.plan.accounting import affordable, calibrate, charges
from consilia.plan.census import cohort_problems, registered
from consilia.plan.chains import chain_of
from consilia.plan.events import adjacency_of
from consilia.plan.grid import secure_terms
from consilia.plan.load import canonical
from consilia.plan.notices import delta_problems, warnings
from consilia.plan.phases import Phase, first_rounds, phases, total_rounds
from consilia.plan.protection import protection_of
from consilia.plan.rules import broken
from consilia.plan.rules_privacy import against
from consilia.plan.rules_secure import secure_problems, too_short
from consilia.plan.rules_stacking import once_problems
from consilia.plan.run_plan import RunPlan, SiteTerms
from consilia.plan.schedule import cohort_size, most_added, schedule
from consilia.plan.schema import Plan
from consilia.plan.secure import SecureTerms
from consilia.plan.terms import site_terms
from consilia.plan.travelling import travelling


def check(
    plan: Plan,
    *,
    counts: Mapping[str, int],
    input_shape: Sequence[int],
    classes: int,
    segments: tuple[Segment, ...],
    problems: Sequence[Problem] = (),
    initial: str | None = None,
    architecture: str | None = None,
) -> RunPlan:
    """Return all that follows from a plan before training.

    Args:
        plan: The plan.
        counts: Training rows each site holds, or patients where they are the unit. Where the plan registers counts, those
            are used and these must not pass them; else these are taken as public.
        input_shape: Shape of one row's features.
        classes: Number of classes.
        segments: The shared parts of the model, in order.
        problems: What others found, such as a model's layers that a claim forbids; raised together with the rest.
        initial: SHA-256 of the weights the run starts from, where the plan names any.
        architecture: SHA-256 of the layers that installed code built.

    Raises:
        PlanError: With every problem.
    """
    public, found = registered(plan, counts)
    found = [*broken(plan), *problems, *found, *_model_problems(classes, segments)]
    if plan.privacy.unit != "none":
        found += delta_problems(plan, {site: max(count, 1) for site, count in public.items()})
    if counts:
        found += [
            *cohort_problems(plan, len(counts)),
            *secure_problems(plan, cohort_size(plan.aggregation, len(counts))),
        ]
    if found:
        raise PlanError(found)
    asked = schedule(plan.aggregation, public, total_rounds(plan), SharedSeed.of(plan.run.seed))
    numbers = {"cohort": most_added(plan.aggregation, asked), "dim": _dim(plan, segments)}
    if unfit := secure_problems(plan, numbers["cohort"]):  # here also where client sampling varies
        raise PlanError(unfit)
    if plan.privacy.epsilon is not None and plan.privacy.noise_multiplier is not None:
        asked = asked[: affordable(plan, public, asked, **numbers)]
    run = first_rounds(plan, len(asked))
    parts = phases(run)
    sites = site_terms(run, parts, public, asked)
    unfit = once_problems(plan, sites, classes)
    if unfit:
        raise PlanError(unfit)
    z = plan.privacy.noise_multiplier or (calibrate(run, parts, sites, **numbers) if _searched(plan) else 0.0)
    _count_is_cheap(plan, max(phase.noise_scale for phase in parts) * z)
    charged = charges(run, parts, sites, z, **numbers)
    adversary = against(plan)
    bounds = [charge.epsilon[adversary] for charge in charged.values()]
    claimed = [value for value in bounds if value is not None]
    _finite(claimed)
    epsilon = max(claimed) if claimed and not plan.run.reproducible else None
    _within_ledger(plan, max(claimed, default=0.0))
    secure = secure_terms(run, parts, sites, z, **numbers)
    return RunPlan(
        plan=plan,
        phases=parts,
        digest=_digest(plan, sites, z, input_shape, classes, segments, initial, architecture),
        sites=sites,
        charges=charged,
        spec=_spec(plan, parts, sites, z, segments, secure),
        schedule=asked,
        adjacency=adjacency_of(plan),
        against=adversary,
        noise_multiplier=z,
        epsilon=epsilon,
        delta=0.0 if plan.privacy.delta is None and epsilon is not None else plan.privacy.delta,
        warnings=warnings(plan, parts, sites, epsilon, short=too_short(plan, asked)),
        secure=secure,
    )


def _dim(plan: Plan, segments: tuple[Segment, ...]) -> int:
    """Return the length of the vector that a learner hands over: SCAFFOLD's control variate rides along."""
    return sum(part.size for part in segments) * (2 if plan.training.scaffold else 1)


def _searched(plan: Plan) -> bool:
    # A stack's noise follows from its own epsilon, without a multiplier.
    return plan.privacy.unit != "none" and plan.training.algorithm != "stacking"


def _count_is_cheap(plan: Plan, z: float) -> None:
    """Refuse a noised count (adaptive clipping) that would use up a step's whole noise multiplier by itself."""
    noise = plan.privacy.count_noise
    if noise is not None and z > 0 and 2 * noise <= z * (1 + 1e-9):
        raise PlanError.of("plan key privacy.count_noise", needs=f"more than half of the noise multiplier {z:.4g}",
                           got=f"{noise:g}", hint="Raise it, or leave it out: it is then chosen")  # fmt: skip


def _model_problems(classes: int, segments: tuple[Segment, ...]) -> list[Problem]:
    found = []
    if classes < 2:
        found.append(Problem("the model", "at least 2 classes", f"{classes}", "Check data.classes and the labels"))
    if not sum(segment.size for segment in segments):
        found.append(Problem("the model", "parameters to share", "none", "Choose another model.name or local_layers"))
    return found


def _finite(bounds: Sequence[float]) -> None:
    if not all(math.isfinite(value) for value in bounds):
        raise PlanError.of("plan key privacy.noise_multiplier", needs="enough noise for a finite epsilon", got="too little",
                           hint="Raise it, or set privacy.epsilon and let the noise follow")  # fmt: skip


def _within_ledger(plan: Plan, largest: float) -> None:
    limit = plan.ledger.max_epsilon
    if limit is not None and largest > limit:
        raise PlanError.of("plan key ledger.max_epsilon", needs=f"at least the run's epsilon {largest:.4g}",
                           got=f"{limit:g}", hint="Add noise or cut rounds: the ledgers would refuse this run")  # fmt: skip


def _spec(
    plan: Plan,
    parts: tuple[Phase, ...],
    sites: tuple[SiteTerms, ...],
    z: float,
    segments: tuple[Segment, ...],
    secure: SecureTerms | None,
) -> UpdateSpec:
    """Return the update as it leaves the learner; the pipeline's contracts are tried on it here, before any data.

    Raises:
        IllegalChain: If the transforms do not fit together.
    """
    control = tuple(Segment(f"control/{part.name}", part.shape) for part in segments) if plan.training.scaffold else ()
    size = secure.cohort if secure is not None else cohort_size(plan.aggregation, len(sites))
    raw = UpdateSpec(segments + control, sites=len(sites) if size is None else size)
    found = []
    for phase in parts:
        protection = protection_of(phase, sites, z, control_dim=sum(part.size for part in control))
        chain = chain_of(plan, raw, protection, secure, phase.index, against(plan))
        # z is 0 where the schedule never asks anybody: then nothing is published.
        noised = chain.contract(learner_spec(raw, protection)).noised
        if plan.privacy.unit != "none" and not noised and z * phase.noise_scale > 0:
            raise IllegalChain.of("the privacy claim", needs="noise before anything is published", got="none",
                                  hint="Set privacy.noise")  # fmt: skip
        found.append(learner_spec(raw, protection))
    return found[0]


def _digest(
    plan: Plan, sites: tuple[SiteTerms, ...], z: float, input_shape: Sequence[int], classes: int,
    segments: tuple[Segment, ...], initial: str | None, architecture: str | None,
) -> str:  # fmt: skip
    """Return one name for all that both ends must agree on; where a file lies on a disk is not part of it."""
    agreed: dict[str, Json] = {
        "version": VERSION,  # another version may draw another schedule or other weights from the same seed
        "plan": canonical(travelling(plan)),
        "counts": {terms.name: terms.count for terms in sites},
        "noise_multiplier": z,
        "input": [int(size) for size in input_shape],
        "classes": classes,
        "model": [[part.name, list(part.shape)] for part in segments],
        "initial": initial,
        "architecture": architecture,
    }
    return digest(agreed)
