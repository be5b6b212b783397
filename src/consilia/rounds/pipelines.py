"""Each phase's pipeline, built by both ends from the plan's public numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

from consilia.core.randomness import SharedSeed
from consilia.core.spec import UpdateSpec
from consilia.pipeline.chain import Chain
from consilia.pipeline.protection import Protection
from consilia.plan.chains import chain_of
from consilia.plan.protection import protection_of
from consilia.plan.run_plan import RunPlan
from consilia.plan.schema import Plan
from consilia.plan.secure import GridTerms


@dataclass(frozen=True)
class Pipeline:
    """One phase's transforms and the public numbers they were built from; `grid` in a secure sum only."""

    chain: Chain
    protection: Protection
    grid: GridTerms | None = None

    def mean_variance(self, sites: Sequence[str], denominator: float) -> float:
        """Return the variance of the noise on each coordinate of the weighted mean of these sites' answers.

        Args:
            sites: Whose answers were added.
            denominator: What the weighted sum is divided by.
        """
        if self.grid is None or not self.grid.share_variance:
            return self.protection.mean_variance(sites, denominator)
        return (self.grid.deviation(len(sites)) * max(self.protection.weights.values()) / denominator) ** 2


def pipelines(plan: RunPlan, *, control_dim: int) -> tuple[Pipeline, ...]:
    """Return the pipeline of each phase.

    Args:
        plan: The checked plan.
        control_dim: Coordinates of SCAFFOLD's control variate; 0 without one.
    """
    found = []
    for phase in plan.phases:
        protection = protection_of(phase, plan.sites, plan.noise_multiplier, control_dim=control_dim)
        grid = plan.secure.grids[phase.index] if plan.secure is not None and plan.secure.grids else None
        raw = UpdateSpec(plan.spec.segments, sites=plan.spec.sites)
        found.append(
            Pipeline(chain_of(plan.plan, raw, protection, plan.secure, phase.index, plan.against), protection, grid)
        )
    return tuple(found)


def shared_seed(plan: Plan, round_number: int) -> SharedSeed:
    """Return the public randomness of a round's pipeline, the same at every site and at the coordinator."""
    return SharedSeed.of(plan.run.seed).derive("pipeline", round_number)
