"""Each phase's pipeline, built by both ends from the plan's public numbers."""

from dataclasses import dataclass

from consilia.core.randomness import SharedSeed
from consilia.core.spec import UpdateSpec
from consilia.pipeline.chain import Chain, Protection, build
from consilia.plan.protection import protection_of
from consilia.plan.run_plan import RunPlan
from consilia.plan.schema import Plan


@dataclass(frozen=True)
class Pipeline:
    """One phase's transforms and the public numbers they were built from."""

    chain: Chain
    protection: Protection


def pipelines(plan: RunPlan, *, control_dim: int) -> tuple[Pipeline, ...]:
    """Return the pipeline of each phase.

    Args:
        plan: The checked plan.
        control_dim: Coordinates of SCAFFOLD's control variate; 0 without one.
    """
    found = []
    for phase in plan.phases:
        protection = protection_of(phase, plan.sites, plan.noise_multiplier, control_dim=control_dim)
        found.append(Pipeline(build(UpdateSpec(plan.spec.segments), protection), protection))
    return tuple(found)


def shared_seed(plan: Plan, round_number: int) -> SharedSeed:
    """Return the public randomness of a round's pipeline, the same at every site and at the coordinator."""
    return SharedSeed.of(plan.run.seed).derive("pipeline", round_number)
