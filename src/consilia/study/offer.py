"""What a search would cost, before anything is drawn, charged or trained: noise, epsilon, against whom.

Two claims are possible, and which one is right depends on who sees what:

random number of trials
    Only the winner leaves, and how many trials there were stays secret. The coordinator saw every trial, so the bound is
    for the world alone: for whoever holds the coordinator to be trusted, or trains at one site that coordinates itself.
fixed number of trials
    All trials are charged as if all were published. The bound holds against everybody the plan's own claim holds against.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from consilia.core.errors import PlanError
from consilia.dp.event import AnyEvent, DiscreteGaussianEvent, Event
from consilia.dp.search import Events
from consilia.dp.selection import price, rough_price, trial_noise
from consilia.dp.selection_trials import Fixed, Trials
from consilia.dp.truncation import truncation_delta
from consilia.federation.simulation import prepare
from consilia.plan.events import sampling_rate
from consilia.plan.rules_privacy import against
from consilia.plan.run_plan import ADVERSARIES, Charge, RunPlan, SiteHalf
from consilia.plan.schema import Plan
from consilia.study import space
from consilia.study.checks import halves, refusals, same, try_values
from consilia.study.space import Axis, Values
from consilia.study.tune_file import TuneFile, keys

_REFERENCE = 1e3  # a multiplier at which every plan has a small epsilon: events grow from there in proportion


@dataclass(frozen=True)
class Site:
    """One site's part of an offer.

    Attributes:
        epsilon: What the search costs this site's records at the plan's delta.
        bases: What one trial may charge, for every combination of the keys that it follows from.
        extra_delta: The part of delta spent on batches that are cut, over all trials.
        accountant: What gave the bound.
    """

    epsilon: float
    bases: tuple[Events, ...]
    extra_delta: float
    accountant: str


@dataclass(frozen=True)
class Offer:
    """A search that can be admitted and run.

    Attributes:
        plan: The plan that trials are made from.
        tune: The tune file.
        axes: What it searches.
        law: The law of the number of trials.
        noise: For every combination of the keys that a charge follows from, the noise multiplier of its trials.
        sites: Per site, what the search costs.
        against: The adversary that the bound holds against.
        epsilon: The largest over sites.
        one: Epsilon of a single trial that was not searched for, with the same noise.
        delta: Of the guarantee.
    """

    plan: Plan
    tune: TuneFile
    axes: tuple[Axis, ...]
    law: Trials
    noise: tuple[tuple[Values, float], ...]
    sites: Mapping[str, Site]
    against: str
    epsilon: float
    one: float
    delta: float

    def trial(self, values: Values) -> Plan:
        """Return the plan of the trial of one candidate: its own values, and the noise that its charge was offered with.

        Raises:
            PlanError: If a value is none that its key may have.
        """
        counted = space.counted_part(values)
        z = next(noise for combination, noise in self.noise if combination == counted)
        return _with_noise(space.with_values(self.plan, values), z)

    def claim(self, trial: RunPlan, search: str) -> RunPlan:
        """Put the bounds of the whole search in the place of a trial's own.

        Raises:
            PlanError: If the trial may charge what the search does not cover.
        """
        for terms in trial.sites:
            if not any(same(trial.site(terms.name).events, base) for base in self.sites[terms.name].bases):
                raise PlanError.of(
                    "a trial", needs="a charge that the price of the search covers", got=f"another at site {terms.name}",
                    hint="A searched key changes what a trial charges: leave it out of the search",
                )  # fmt: skip
        return replace(
            trial, charges={name: self._claimed(name, charge) for name, charge in trial.charges.items()},
            epsilon=self.epsilon, warnings=(sentence(self), *trial.warnings), within=search,
        )  # fmt: skip

    def _claimed(self, name: str, charge: Charge) -> Charge:
        site = self.sites[name]
        held = (
            {who for who in ADVERSARIES if charge.epsilon[who] is not None}
            if isinstance(self.law, Fixed)
            else {"world"}
        )
        return replace(
            charge, epsilon={who: site.epsilon if who in held else None for who in ADVERSARIES},
            extra_delta=site.extra_delta, accountant=site.accountant,
        )  # fmt: skip


def offer(plan: Plan, tune: TuneFile, data_folder: Path) -> Offer:
    """Return what a search costs; with a target epsilon, the noise that keeps it there.

    Raises:
        PlanError: With every reason why the search cannot be claimed, or a candidate cannot be trained.
        DataError: With every fault of the data.
    """
    law, axes = tune.law, space.axes(keys(tune))
    problems = list(refusals(plan, tune))
    if problems:
        raise PlanError(problems)
    target = None if plan.privacy.noise_multiplier is not None else tune.epsilon or plan.privacy.epsilon
    combinations = list(space.combinations(axes))
    plans = [space.with_values(_with_noise(plan, plan.privacy.noise_multiplier or _REFERENCE), c) for c in combinations]
    try_values(plans[0], axes, data_folder)
    checked = [prepare(each, data_folder).run_plan for each in plans]
    noise = [each.noise_multiplier for each in checked]
    if target is not None:
        noise = [_calibrated(each, law, target) for each in checked]
    while True:
        checked = [prepare(_with_noise(each, z), data_folder).run_plan for each, z in zip(plans, noise, strict=True)]
        sites = _sites(checked, law, target)
        epsilon = max(site.epsilon for site in sites.values())
        if target is None or epsilon <= target:
            break
        noise = [_rounded_up(z * (1.0 + max(1e-5, (epsilon / target - 1.0) / 2))) for z in noise]
    if not math.isfinite(epsilon):
        raise PlanError.of("plan key privacy.noise_multiplier", needs="enough noise for a finite epsilon of the search",
                           got="too little", hint="Raise it, or set an epsilon and let the noise follow")  # fmt: skip
    adversary = against(plan)
    return Offer(
        plan=plan, tune=tune, axes=axes, law=law, noise=tuple(zip(combinations, noise, strict=True)), sites=sites,
        against=adversary, epsilon=epsilon, one=max(each.epsilon or 0.0 for each in checked),
        delta=plan.privacy.delta or 0.0,
    )  # fmt: skip


def sentence(offered: Offer) -> str:
    """Return what a reader of the winner's privacy card must know."""
    if isinstance(offered.law, Fixed):
        return (f"Epsilon covers a search: this is the best of {offered.law.count} trials, all of which are charged as if "
                "all were published.")  # fmt: skip
    return (
        f"Epsilon covers a search: this is the best of a random number of trials ({offered.tune.distribution}, "
        f"{offered.law.mean:g} on average) which is kept secret, as are the other trials. It holds against those who see "
        "the winner only; the coordinator, and other sites, saw every trial and are trusted."
    )


def _calibrated(plan: RunPlan, law: Trials, target: float) -> float:
    """Return the smallest noise multiplier at which every site's part of the search costs at most `target`."""
    delta = (plan.delta or 0.0) - _cut(plan, law, target)
    distinct = {half.events: half for half in halves(plan).values()}.values()

    def cost(half: SiteHalf, z: float) -> float:
        return rough_price([_scaled(half, z)], law, delta)

    z = 0.0
    for half in sorted(distinct, key=lambda half: cost(half, 1.0), reverse=True):
        if z == 0.0 or price([_scaled(half, z)], law, delta).epsilon > target:
            found = trial_noise(epsilon=target, delta=delta, trials=law, make=lambda z, half=half: [_scaled(half, z)])  # type: ignore[misc]
            z = _rounded_up(found)
    return z


def _scaled(half: SiteHalf, z: float) -> Events:
    """Return a site's events at another multiplier: those of its rounds are in proportion, an evaluation's stay."""
    factor, training = z / half.noise_multiplier, set(half.charge.round_events)

    def scaled(event: AnyEvent) -> AnyEvent:
        if isinstance(event, Event) and event in training:
            return replace(event, noise_multiplier=event.noise_multiplier * factor)
        if isinstance(event, DiscreteGaussianEvent) and event in training:
            return event.scaled(factor)
        return event

    return tuple((scaled(event), times) for event, times in half.events)


def _sites(checked: list[RunPlan], law: Trials, target: float | None) -> dict[str, Site]:
    """Return what the search costs each site; the price of cut batches grows with epsilon, so it is gone up to."""
    delta, priced_at = checked[0].delta or 0.0, target or 0.0
    while True:
        extra = max(_cut(plan, law, priced_at) for plan in checked)
        found = {}
        for name in halves(checked[0]):
            bases = tuple(plan.site(name).events for plan in checked)
            cost = price(bases, law, delta - extra)
            found[name] = Site(cost.epsilon, bases, extra, cost.accountant)
        largest = max(site.epsilon for site in found.values())
        if not math.isfinite(largest) or largest <= priced_at or extra == 0.0:
            return found
        priced_at = largest * (1.0 + 1e-6)


def _cut(plan: RunPlan, law: Trials, epsilon: float) -> float:
    """Return the part of delta that cut batches cost over all trials: in expectation as many as the law's mean.

    Guarantees:
        Let every trial run with and without its caps by the same draws. Some batch of some trial is cut with probability
        at most E[K] times what `truncation_delta` counts for one, on both data sets; so its coupling proves the same for
        the search.

    Raises:
        PlanError: If that is half of delta or more.
    """
    spent, delta = 0.0, plan.delta or 0.0
    if plan.plan.privacy.within_site and plan.plan.training.batch == "poisson":
        spent = law.mean * max(
            math.fsum(
                truncation_delta(
                    terms.count, sampling_rate(phase.plan), here.batch_cap, here.steps * here.participations, epsilon
                )
                for phase, here in zip(plan.phases, terms.phases, strict=True)
            )
            for terms in plan.sites
        )  # fmt: skip
    if spent >= delta / 2:
        raise PlanError.of(
            "plan key training.batch_cap", needs=f"a cap so rarely reached that cut batches of all trials cost at most half "
            f"of delta = {delta:g}", got=f"a cost of {spent:.2g} at epsilon {epsilon:.3g}",
            hint="Raise or remove training.batch_cap, or try fewer trials",
        )  # fmt: skip
    return spent


def _with_noise(plan: Plan, z: float) -> Plan:
    privacy = plan.privacy.model_copy(update={"epsilon": None, "noise_multiplier": z})
    return plan.model_copy(update={"privacy": privacy})


def _rounded_up(z: float) -> float:
    scale = 10.0 ** (5 - math.floor(math.log10(z)))
    return math.ceil(z * scale) / scale
