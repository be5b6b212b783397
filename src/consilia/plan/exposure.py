"""How far each site's unit is covered by the noise, phase by phase, and what of the noise an adversary cannot subtract."""

from collections.abc import Sequence
from dataclasses import dataclass

from consilia.dp.event import AnyEvent
from consilia.dp.truncation import truncation_delta
from consilia.plan.events import ratios, round_event, sampling_rate, shared_event
from consilia.plan.grid import grid_of, is_distributed, own_l2, parties, with_noise
from consilia.plan.phases import Phase
from consilia.plan.run_plan import SiteTerms
from consilia.plan.schema import Plan
from consilia.plan.secure import GridTerms

_SERVER_SIDE = ("server", "server+colluding-sites")

# What tells one site's composition from another's; sites of equal exposure have equal bounds.
Exposure = tuple[tuple[float, int, int], ...]
Draws = tuple[int, float, int, int]


@dataclass(frozen=True)
class Part:
    """What one phase adds to a site's composition.

    Attributes:
        phase: The phase.
        own: How many times the site's own largest contribution the noise was scaled for; where sites add shares of integer
            noise, how far one unit moves the site's integers (l2).
        steps: Local steps a round.
        turns: Rounds in which the site is asked.
        count: Registered rows, or patients where they are the unit.
        cap: Largest batch.
        grid: The integers that noise is added to, without the noise; None where it is added to real numbers.
        honest: Shares that carry the whole noise.
    """

    phase: Phase
    own: float
    steps: int
    turns: int
    count: int
    cap: int
    grid: GridTerms | None = None
    honest: int = 1

    def event(self, z: float, shares: int) -> AnyEvent:
        """Return the mechanism of one answered round for who cannot subtract so many shares of the noise."""
        z *= self.phase.noise_scale
        if self.grid is None:
            return round_event(self.phase.plan, z, self.steps, self.own)
        return shared_event(self.phase.plan, with_noise(self.grid, z, self.honest), shares, self.own)

    @property
    def cover(self) -> float:
        """More for a unit that the noise covers better."""
        return self.own if self.grid is None else 1.0 / self.own

    @property
    def draws(self) -> Draws:
        """Registered count, sampling rate, cap and number of the batches that may be cut."""
        return self.count, sampling_rate(self.phase.plan), self.cap, self.steps * self.turns


def exposed(
    phases: Sequence[Phase], sites: Sequence[SiteTerms], *, cohort: int, dim: int
) -> dict[str, tuple[Part, ...]]:
    """Return each site's parts, one for each phase."""
    found: dict[str, list[Part]] = {terms.name: [] for terms in sites}
    for phase in phases:
        terms = parties(phase.plan, cohort) if is_distributed(phase.plan) else None
        grid = None if terms is None else grid_of(phase, sites, dim=dim)
        own = ratios(phase, sites) if grid is None else own_l2(phase, sites, dim=dim)
        for site in sites:
            here = site.phases[phase.index]
            found[site.name].append(
                Part(phase, own[site.name], here.steps, here.participations, site.count, here.batch_cap, grid,
                     1 if terms is None else terms.honest)
            )  # fmt: skip
    return {name: tuple(parts) for name, parts in found.items()}


def exposure_of(parts: Sequence[Part]) -> Exposure:
    """Return what tells these parts from another site's."""
    return tuple((part.own, part.steps, part.turns) for part in parts)


def shares_against(plan: Plan, who: str, cohort: int) -> int | None:
    """Return how many shares of the noise an adversary cannot subtract, 1 where it is one draw; None without a bound."""
    terms = parties(plan, cohort) if is_distributed(plan) else None
    if terms is not None:
        return terms.shares(who)
    return None if plan.privacy.noise == "server" and who in _SERVER_SIDE else 1


def cut_delta(draws: Draws, epsilon: float) -> float:
    """Return the delta that cutting these batches at their cap costs."""
    count, rate, cap, steps = draws
    return truncation_delta(count, rate, cap, steps, epsilon) if cap < count and steps else 0.0
