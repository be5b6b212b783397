"""A whole run in one process: every site simulated, with its own rows, ledger and secrets, behind the in-process transport."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from consilia.core.canonical import LastDigest
from consilia.core.errors import PlanError, Problem
from consilia.core.randomness import SharedSeed
from consilia.core.update import Vector
from consilia.crypto.attestation.policy import Policy
from consilia.data.patients import Patients
from consilia.data.table import Table
from consilia.dp.event import AnyEvent
from consilia.federation.attesting import policy_of
from consilia.federation.consortium import Consortium
from consilia.federation.sums import own_share, site_sum
from consilia.learning.cohort.task import fits
from consilia.learning.flat import FlatModel
from consilia.learning.initial import load_initial
from consilia.learning.models import build as build_model
from consilia.learning.models import problems
from consilia.learning.stacking.module import StackModule
from consilia.learning.stacking.work import StackWork
from consilia.learning.work import LocalWork
from consilia.plan.check import check
from consilia.plan.phases import Phase
from consilia.plan.phases import phases as phases_of
from consilia.plan.rules import broken
from consilia.plan.run_plan import RunPlan, SiteHalf
from consilia.plan.schema import Plan
from consilia.plan.stack_work import stack_shape, stack_work
from consilia.rounds.entropy import Entropy
from consilia.rounds.learner import TorchLearner
from consilia.rounds.mechanism import event_that_runs, require_covered
from consilia.rounds.pipelines import Pipeline, pipelines
from consilia.rounds.ports import Learner, Transport
from consilia.rounds.rates import site_factor
from consilia.rounds.rows import SiteRows, site_rows
from consilia.rounds.site import Site
from consilia.rounds.stack_learner import StackLearner
from consilia.rounds.together import LEAST_TOGETHER, Together
from consilia.store.ledger_store import SiteStore
from consilia.store.own_numbers import OwnNumbers
from consilia.transport.incohort import InCohort
from consilia.transport.inprocess import InProcess

_WRITERS = 16  # ledgers that wait for the disk at the same time


@dataclass(frozen=True)
class Prepared:
    """A checked plan with what a simulation needs beside it."""

    run_plan: RunPlan
    rows: Mapping[str, SiteRows]
    model: FlatModel
    initial: Vector
    policy: Policy | None = None

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """Each phase's pipeline, which both ends build from the plan's public numbers."""
        return pipelines(self.run_plan, control_dim=self.model.dim if self.run_plan.plan.training.scaffold else 0)


def prepare(plan: Plan, folder: Path) -> Prepared:
    """Check the plan, read the rows, build the model; the rules speak before any data is read.

    Raises:
        PlanError: With every problem of the plan.
        DataError: With every fault of the data.
    """
    first = broken(plan)
    if first:
        raise PlanError(first)
    rows = site_rows(plan, folder)
    table = next(iter(rows.values())).train
    config = plan.model
    module: nn.Module
    if plan.training.algorithm == "stacking":
        module = StackModule(stack_shape(plan, math.prod(table.input_shape)), plan.stack.row_bound)
    else:
        module = build_model(
            config.name, input_shape=table.input_shape, classes=len(table.classes), hidden=tuple(config.hidden),
            activation=config.activation, seed=SharedSeed.of(plan.run.seed).derive("model").integer(),
        )  # fmt: skip
    unfit = [*problems(module, unit=plan.privacy.unit, input_shape=table.input_shape), *_unfit_rows(plan, table)]
    if unfit:
        raise PlanError(unfit)
    model = FlatModel(module, config.local_layers)
    initial = None
    if config.initial is not None:
        initial = load_initial(folder / config.initial, model, other_head=True).sha256
    for phase in phases_of(plan):
        model.part(phase.train)  # refuses a part that the model lacks
    if model.batch_statistics and config.local_layers != "norm" and not _plain_average(plan):
        raise PlanError.of(
            "plan key training.server_optimizer",
            needs='plain averaging for shared BatchNorm statistics (fedavg, "sgd", server_learning_rate = 1)',
            got=f'{plan.training.algorithm} with "{plan.training.server_optimizer}"',
            hint='Keep the norm layers at the sites (model.local_layers = "norm"), or use GroupNorm',
        )
    run_plan = check(
        plan, counts={site: units(plan, part.train) for site, part in rows.items()}, input_shape=table.input_shape,
        classes=len(table.classes), segments=model.segments, initial=initial,
    )  # fmt: skip
    return Prepared(run_plan, rows, model, model.get(), policy_of(plan, folder))


def _unfit_rows(plan: Plan, table: Table) -> list[Problem]:
    if plan.training.augment == "none" or len(table.input_shape) == 3:
        return []
    return [Problem(f'plan key training.augment = "{plan.training.augment}"', "images (channels, height, width)",
                    f"rows of shape {table.input_shape}", 'Set training.augment = "none"')]  # fmt: skip


def _plain_average(plan: Plan) -> bool:
    # A running variance is an average, not a weight: a step of another kind could make it negative.
    training = plan.training
    return (
        training.algorithm == "fedavg" and training.server_optimizer == "sgd" and training.server_learning_rate == 1.0
    )


def units(plan: Plan, rows: Table) -> int:
    """Return how many units of privacy these training rows are: patients where they are the unit, else rows."""
    return Patients.of(rows).count if plan.privacy.unit == "patient" else len(rows)


def local_work(half: SiteHalf, phase: Phase) -> LocalWork:
    """Translate a phase into one site's work in each of its rounds, before the schedule of the rate."""
    training, privacy, terms = phase.plan.training, phase.plan.privacy, half.terms.phases[phase.index]
    inside = privacy.within_site
    z = half.noise_multiplier * phase.noise_scale if inside and privacy.noise == "site" else 0.0
    # Rare noise on the count costs the gradients little: 3 % more noise on them at 2.1 z, less where batches are large.
    count_noise = privacy.count_noise or max(terms.expected_batch / 20, 2.1 * z)
    return LocalWork(
        algorithm="fedsgd" if training.algorithm == "fedsgd" else "fedavg", batch=training.batch, batch_size=training.batch_size,
        sampling_rate=training.sampling_rate, batch_cap=terms.batch_cap, expected_batch=terms.expected_batch,
        steps=terms.steps, optimizer=training.optimizer, learning_rate=training.learning_rate, momentum=training.momentum,
        weight_decay=training.weight_decay, proximal_mu=training.proximal_mu,
        clip_norm=privacy.clip_norm if inside else None, noise_multiplier=z, clipping=privacy.clipping,
        target_quantile=privacy.target_quantile, clip_learning_rate=privacy.clip_learning_rate,
        count_noise=count_noise if privacy.clipping == "adaptive" and z > 0 else 0.0,
        augment=training.augment, views=training.views, trained=phase.train,
    )  # fmt: skip


def stack_of(half: SiteHalf, rows: Table) -> StackWork | None:
    """Return a site's work where it answers once with a stack; None where it trains round by round."""
    if half.plan.training.algorithm != "stacking":
        return None
    return stack_work(half.plan, stack_shape(half.plan, math.prod(rows.input_shape)), half.terms.count)


def work_of(half: SiteHalf, rounds: int) -> Callable[[int], LocalWork]:
    """Return what each round asks of one site; `rounds` is the length of the run."""
    works = [local_work(half, phase) for phase in half.phases]

    def work(number: int) -> LocalWork:
        phase = half.phase(number)
        factor = site_factor(phase.plan.training, number, rounds)
        mine = works[phase.index]
        return mine if factor == 1.0 else replace(mine, learning_rate=mine.learning_rate * factor)

    return work


def entropy_of(plan: Plan) -> Entropy:
    """Return the operating system's randomness, or the public seed's in the reproducible mode."""
    return Entropy(SharedSeed.of(plan.run.seed).derive("reproducible") if plan.run.reproducible else None)


def _many_small(prepared: Prepared) -> bool:
    """Return True if sites may be trained together: never in the reproducible mode, whose sums come out bit for bit."""
    plan = prepared.run_plan
    works = [local_work(plan.site(plan.sites[0].name), phase) for phase in plan.phases]
    rank = 1 + len(next(iter(prepared.rows.values())).train.input_shape)
    return (
        not plan.plan.run.reproducible
        and plan.plan.training.algorithm != "stacking"
        and max(map(len, plan.schedule)) >= LEAST_TOGETHER
        and any(fits(prepared.model, work, rank) for work in works)
    )


class Simulation:
    """All sites of a run, ready to answer; closes their ledgers on exit."""

    def __init__(self, prepared: Prepared, *, run: str, home: Path) -> None:
        plan = prepared.run_plan
        entropy, seed = entropy_of(plan.plan), SharedSeed.of(plan.plan.run.seed)
        scaffold = plan.plan.training.scaffold
        self._population = plan.population
        stateful = scaffold or plan.plan.model.local_layers != "none" or plan.plan.messages.top_k is not None
        steps = prepared.pipelines
        digest, self._stores, self.sites = LastDigest(), [], {}
        self.consortium: Consortium | None = None
        try:
            stores = {}
            for terms in plan.sites:
                if stateful or plan.secure is not None or plan.charges[terms.name].booked:
                    stores[terms.name] = SiteStore.open(home / "sites" / f"{terms.name}.sqlite", terms.name)
                    self._stores.append(stores[terms.name])
            if plan.secure is not None:
                self.consortium = Consortium.of(self._stores, home)
            heaviest = max(terms.weight for terms in plan.sites)
            for terms in plan.sites:
                half = plan.site(terms.name)
                rows = prepared.rows[terms.name]
                held = units(plan.plan, rows.train)
                if held > terms.count:
                    raise PlanError.of(f"site {terms.name}", needs=f"at most its registered {terms.count} training rows",
                                       got="more", hint="Register a larger count in sites.counts")  # fmt: skip
                stack = stack_of(half, rows.train)
                for phase, step in zip(plan.phases, steps, strict=True):
                    own = terms.weight * step.protection.site_bound(terms.name)
                    runs: AnyEvent | None = stack.event if stack is not None else event_that_runs(
                        step.protection.unit, local_work(half, phase), step.chain, own=own, units=held, heaviest=heaviest,
                    )  # fmt: skip
                    require_covered(half, phase, runs)
                learner: Learner = StackLearner(prepared.model, rows.train, rows.test, stack) if stack else TorchLearner(
                    prepared.model, rows.train, rows.test, work_of(half, len(plan.schedule)),
                    seed=seed.derive("site", terms.name), scaffold=scaffold, by_patient=plan.plan.privacy.unit == "patient",
                )  # fmt: skip
                store = stores.get(terms.name)
                share = own_share(half, held) / heaviest
                sums, kept = None, None
                if self.consortium is not None and store is not None:
                    sums = site_sum(
                        plan,
                        half,
                        self.consortium,
                        run=run,
                        share=share,
                        store=store,
                        entropy=entropy,
                        pipelines=steps,
                        policy=prepared.policy,
                    )
                if sums is not None:
                    kept = OwnNumbers(home / "sites" / f"{terms.name}-own.jsonl").note
                self.sites[terms.name] = Site(
                    half, run=run, learner=learner, pipelines=steps, payload_dim=prepared.model.dim * (2 if scaffold else 1),
                    store=store, entropy=entropy, fingerprint=rows.train.fingerprint() if store else "", digest=digest,
                    share=share, sums=sums, own=kept,
                )  # fmt: skip
            # All are asked before any books: a run that one ledger refuses costs the others nothing.
            for site in self.sites.values():
                site.require_room()
        except BaseException:
            self.close()
            raise
        self.transport: Transport = InProcess({name: site.handle for name, site in self.sites.items()}, time.monotonic)
        if _many_small(prepared):
            trainer = Together(prepared.model, time.process_time)
            self.transport = InCohort(self.sites, trainer, time.monotonic, writers=_WRITERS if self._stores else 1)

    def admit(self) -> None:
        """Admit the run to every site's ledger; all were asked before the first one writes.

        Raises:
            BudgetExceeded: If another run took a site's budget in between.
        """
        for site in self.sites.values():
            site.open()

    def compare(self, heads: Mapping[str, str]) -> None:
        """Check each site's ledger against the head that the coordinator last saw of it.

        Raises:
            StoreError: If a ledger was changed, or rolled back to before that head.
        """
        for store in self._stores:
            if heads.get(store.site):
                store.verify(self._population, known=heads[store.site])

    def close(self) -> None:
        """Let go of the sites' ledgers."""
        for store in self._stores:
            store.close()

    def __enter__(self) -> "Simulation":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
