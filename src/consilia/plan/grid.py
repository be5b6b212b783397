"""From a plan's privacy and precision to integers: scale, sensitivity after rounding, range, noise share, ring."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from consilia.core.errors import PlanError
from consilia.core.ring import BITS, smallest
from consilia.core.spec import Unit
from consilia.dp.discrete import VARIANCE, reach
from consilia.pipeline.grid import Rounding, rounded_l2
from consilia.plan.ciphers import paillier_lanes, rlwe_parameters
from consilia.plan.phases import Phase
from consilia.plan.protection import protection_of
from consilia.plan.run_plan import SiteTerms
from consilia.plan.schema import Plan
from consilia.plan.secure import GridTerms, SecureTerms, threshold

EXCESS = 0.01  # of the sensitivity, at most, that rounding may add for the site that counts most


def kept_coordinates(plan: Plan, dim: int) -> int:
    """Return how many of `dim` coordinates a site sends: the plan's share of them, rounded up."""
    share = plan.messages.random_k or plan.messages.top_k
    return dim if share is None else max(1, math.ceil(share * dim - 1e-9))


def is_distributed(plan: Plan) -> bool:
    """True if the noise is drawn as shares inside a secure sum."""
    return plan.privacy.unit != "none" and plan.privacy.noise == "distributed"


def parties(plan: Plan, cohort: int) -> SecureTerms | None:
    """Return who must answer in a plan's secure sum; None where it has none. Its grids are still to come."""
    section = plan.secure_sum
    if section.mode == "none":
        return None
    return SecureTerms(
        section.mode, section.adversary, cohort, section.dropouts, section.colluders,
        threshold(section.mode, section.adversary, cohort), distributed=is_distributed(plan),
    )  # fmt: skip


def secure_terms(
    plan: Plan, phases: Sequence[Phase], sites: Sequence[SiteTerms], z: float, *, cohort: int, dim: int
) -> SecureTerms | None:
    """Return all public numbers of a plan's secure sum; None where it has none.

    Args:
        plan: A plan that breaks no rule.
        phases: Its phases.
        sites: Every site's terms.
        z: The run's noise multiplier.
        cohort: Sites that a round asks, the most of any round.
        dim: Coordinates of the vector that the learner hands over.

    Raises:
        PlanError: If no ring, or not the plan's scheme, holds the sum.
    """
    terms = parties(plan, cohort)
    if terms is None or terms.mode == "attested":
        return terms
    grids = tuple(
        with_noise(grid_of(phase, sites, dim=dim), z * phase.noise_scale, terms.honest)
        if terms.distributed
        else given_grid(phase.plan, dim)
        for phase in phases
    )
    widest = max(grids, key=lambda grid: _reach(grid, cohort))
    ring = smallest(_reach(widest, cohort))
    if ring is None or widest.share_variance > VARIANCE[1]:
        raise PlanError.of(
            "the secure sum",
            needs=f"sums of at most {max(BITS)} bits, and shares of noise of variance up to {VARIANCE[1]:.0e}",
            got=f"{cohort} sites x {widest.values} steps + noise up to {_reach(widest, cohort) - cohort * widest.values}, "
            f"which takes {_reach(widest, cohort).bit_length() + 1} bits, with shares of variance {widest.share_variance:.2g}",
            hint="Lower the noise multiplier, training.batch_cap or the number of coordinates",
        )
    found = replace(terms, ring=ring, grids=grids, value_bound=max(_reach(grid, 1) for grid in grids))
    if terms.mode == "rlwe":
        rlwe_parameters(found)
    if terms.mode == "paillier":
        paillier_lanes(found, plan.secure_sum.key_bits, len(sites))
    return found


def given_grid(plan: Plan, dim: int) -> GridTerms:
    """Return the grid of numbers that are cut to `secure_sum.range`: no noise is added to them as integers."""
    bits = plan.messages.quantize_bits or plan.secure_sum.value_bits
    steps = (1 << (bits - 1)) - 1
    # Rounding up or down by chance may pass the last step by one.
    return GridTerms(kept_coordinates(plan, dim), steps / plan.secure_sum.range, steps + 1, cut=plan.secure_sum.range)


def grid_of(phase: Phase, sites: Sequence[SiteTerms], *, dim: int) -> GridTerms:
    """Return a phase's grid for distributed noise, whose share is still to come.

    The scale is the least power of two at which rounding adds at most 1 % to the sensitivity: sqrt(d) <= .01 s Delta.

    Guarantees:
        A coordinate of a site's integers is at most `values`. Record and patient unit: at most as many units as a batch may
        hold add a vector of norm at most C each, over the public normaliser, times weight over largest weight; site
        unit: the whole update is clipped.
    """
    moves = _moves(phase, sites, dim=dim)
    kept, largest = kept_coordinates(phase.plan, dim), max(moves.values())
    scale = 2.0 ** math.ceil(math.log2(math.sqrt(kept) / (EXCESS * largest)))
    units = {
        terms.name: float(terms.phases[phase.index].batch_cap) if Unit(phase.plan.privacy.unit).within_site else 1.0
        for terms in sites
    }
    reach = max(move * units[site] for site, move in moves.items())
    return GridTerms(
        kept, scale, math.ceil(scale * reach) + 1, l2=rounded_l2(largest, scale, kept, _rounding(phase.plan))
    )


def own_l2(phase: Phase, sites: Sequence[SiteTerms], *, dim: int) -> Mapping[str, float]:
    """Return for each site how far one of its units moves its integers (l2), in grid steps, rounding included.

    Guarantees:
        Record and patient unit: rounding uses the same secret draw on neighbouring data, so each coordinate moves by less
        than one step more than the real vector does: at most s Delta + sqrt(d) in all. Replacing a unit moves the real
        vector by 2 Delta. Site unit: the whole rounded vector is held to a bound near s Delta.
    """
    grid, twice = grid_of(phase, sites, dim=dim), _twice(phase.plan)
    return {
        site: rounded_l2(move * twice, grid.scale, grid.kept, _rounding(phase.plan))
        for site, move in _moves(phase, sites, dim=dim).items()
    }


def with_noise(grid: GridTerms, z: float, honest: int) -> GridTerms:
    """Return the grid with the share of noise at which `honest` shares together have z times its l2 as deviation."""
    return replace(grid, share_variance=math.ceil((z * (grid.l2 or 0.0)) ** 2 / honest))


def _reach(grid: GridTerms, sites: int) -> int:
    """Return the largest absolute value that the sum of so many sites may take."""
    return sites * grid.values + reach(grid.share_variance, sites, grid.kept)


def _rounding(plan: Plan) -> Rounding:
    return Rounding.CONDITIONAL if plan.privacy.unit == "site" else Rounding.COUPLED


def _twice(plan: Plan) -> float:
    return 2.0 if plan.privacy.within_site and plan.training.batch == "fixed" else 1.0


def _moves(phase: Phase, sites: Sequence[SiteTerms], *, dim: int) -> dict[str, float]:
    """Return for each site how far adding or removing one unit moves what it sends (l2), over the largest weight."""
    control = dim // 2 if phase.plan.training.scaffold else 0
    protection = protection_of(phase, sites, 0.0, control_dim=control)
    heaviest, factor = max(protection.weights.values()), dim / kept_coordinates(phase.plan, dim)
    return {
        site: weight / heaviest * protection.site_bound(site) * factor for site, weight in protection.weights.items()
    }
