"""How far the coordinator's step can move the model in a round, from the plan's public numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from consilia.plan.phases import Phase
from consilia.plan.run_plan import RunPlan
from consilia.plan.schema import Plan
from consilia.rounds.local_step import Reach, noise_length, own_reach
from consilia.rounds.pipelines import Pipeline

MISSED = 1e-9  # probability that an honest run passes any of its bounds by chance
_ROUNDED = 1 + 1e-4  # what float32 may add


@dataclass(frozen=True)
class Step:
    """One round's step.

    Attributes:
        reach: Bound on its length; None where the plan bounds nothing: without clipping any update may be of any size.
        gain: How many times the largest update it can be as long, for the coordinator's sgd and momentum; else None.
    """

    reach: Reach | None
    gain: float | None


def server_steps(plan: RunPlan, pipelines: Sequence[Pipeline]) -> tuple[Step, ...]:
    """Return the step of each phase.

    Guarantees:
        An honest coordinator's step passes `reach` in any round of the run with probability at most `MISSED`, whoever answers
        and whatever the sites' rows are, as long as sites keep to their clip norms. Clipped sums are bounded by the clip norm;
        Gaussian noise by its length; rounding by a step of the grid a site; what the coordinator's optimizer makes of a bounded
        mean follows in `_moved`.
    """
    return tuple(Step(_reach(plan, phase, pipelines[phase.index]), _gain(phase.plan)) for phase in plan.phases)


def _reach(plan: RunPlan, phase: Phase, pipeline: Pipeline) -> Reach | None:
    dim = plan.spec.dim // (2 if plan.plan.training.scaffold else 1)
    mean = None if phase.plan.privacy.unit == "none" else _mean(plan, phase, pipeline, dim)
    moved = _moved(phase.plan, mean, dim, _least_variance(plan, phase, pipeline))
    return None if moved is None else moved.times(_ROUNDED)


def _mean(plan: RunPlan, phase: Phase, pipeline: Pipeline, dim: int) -> Reach | None:
    """Return a bound on the weighted mean of a round's answers, as the coordinator decodes it."""
    tail = math.sqrt(2 * math.log(len(plan.schedule) * len(plan.sites) / MISSED))
    z = plan.noise_multiplier * phase.noise_scale
    own = [own_reach(phase, terms, z, dim, tail) for terms in plan.sites]
    if any(reach is None for reach in own):
        return None
    known = [reach for reach in own if reach is not None]
    reach = Reach(max(reach.fixed for reach in known), max(reach.slope for reach in known))
    chain, protection = pipeline.chain, pipeline.protection
    privacy, sent = phase.plan.privacy, chain.sent
    if privacy.unit == "site" and privacy.noise == "site":
        largest = max(map(protection.site_bound, protection.weights))
        reach = reach.plus(noise_length(z * largest, dim, tail))
    reach = reach.times(chain.stretch)
    bits = plan.plan.messages.quantize_bits
    if bits is not None and pipeline.grid is None:
        # A step of a block is its largest value over 2^(bits-1) - 1, and that at most the vector's length.
        reach = reach.times(1 + math.sqrt(sent) / (2 ** (bits - 1) - 1))
    names, weight = _heaviest(plan, phase)
    if privacy.noise != "site":
        stretch = chain.stretch if pipeline.grid is None else 1.0
        deviation = math.sqrt(pipeline.mean_variance(names, weight)) * stretch
        reach = reach.plus(noise_length(deviation, dim, tail))
    if pipeline.grid is not None:
        step = max(protection.weights.values()) / pipeline.grid.scale / weight
        reach = reach.plus(len(names) * step * math.sqrt(sent))
    return reach


def _heaviest(plan: RunPlan, phase: Phase) -> tuple[Sequence[str], float]:
    """Return a round's names and least weight: all noise over as little weight as any round of the phase has."""
    weights = {terms.name: terms.weight for terms in plan.sites}
    rounds = [asked for asked in plan.schedule[phase.first - 1 : phase.last] if asked]
    if plan.plan.aggregation.mode != "synchronous":
        added = plan.spec.sites
        return sorted(weights)[:added], sum(sorted(weights.values())[:added])
    names = max(rounds, key=len, default=tuple(weights))
    return names, min((sum(weights[name] for name in asked) for asked in rounds), default=sum(weights.values()))


def _least_variance(plan: RunPlan, phase: Phase, pipeline: Pipeline) -> float:
    """Return the least variance that the mean's noise can have on a coordinate, as the coordinator reckons it."""
    names, weights = list(pipeline.protection.weights), pipeline.protection.weights
    z, heavy = plan.noise_multiplier * phase.noise_scale, sum(weights.values())
    if phase.plan.privacy.unit == "none" or not z:
        return 0.0
    if phase.plan.privacy.noise == "site":  # weights that add up to 1 have squares that add up to 1 / n at least
        return (z * min(map(pipeline.protection.site_bound, names))) ** 2 / len(names)
    if pipeline.grid is not None and plan.secure is not None:
        names = names[: plan.secure.fewest]
    return pipeline.mean_variance(names, heavy)


def _moved(plan: Plan, mean: Reach | None, dim: int, variance: float) -> Reach | None:
    """Return a bound on the step that the coordinator's optimizer makes of means of this length.

    adagrad, adam, yogi: no coordinate moves by more than the rate times the largest |m| / sqrt(v), whatever the updates are;
    by Cauchy and Schwarz for adam, and for yogi since its v never falls below b2^k min(b2, 1 - b2) u^2 of k rounds ago.
    """
    training = plan.training
    rate, b1, b2, tau = (
        training.server_learning_rate,
        training.server_momentum,
        training.server_beta2,
        training.server_tau,
    )
    kind = training.server_optimizer
    if kind in ("sgd", "momentum"):
        return None if mean is None else mean.times(rate if kind == "sgd" else rate / (1 - b1))
    if kind == "dp-adam":
        floor = math.sqrt(variance * math.sqrt(2 * (1 - b2) / (1 + b2)))
        return None if mean is None else mean.times(rate / (floor + tau))
    ratio = math.inf
    if kind == "adagrad":
        ratio = 1.0
    elif kind == "adam" and b1**2 < b2:
        ratio = (1 - b1) / math.sqrt((1 - b2) * (1 - b1**2 / b2))
    elif kind == "yogi" and b1**2 < b2:
        ratio = (1 - b1) / (1 - b1 / math.sqrt(b2)) / math.sqrt(min(b2, 1 - b2))
    if math.isfinite(ratio):
        return Reach(rate * ratio * math.sqrt(dim))
    return None if mean is None else mean.times(rate / tau)


def _gain(plan: Plan) -> float | None:
    training = plan.training
    match training.server_optimizer:
        case "sgd":
            return training.server_learning_rate
        case "momentum":
            return training.server_learning_rate / (1 - training.server_momentum)
    return None
