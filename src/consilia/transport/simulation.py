"""A whole run in one process: every site simulated, with its own rows, ledger and secrets, behind the in-process transport."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from consilia.core.canonical import LastDigest
from consilia.core.errors import PlanError
from consilia.core.randomness import SharedSeed
from consilia.core.spec import UpdateSpec
from consilia.core.update import Vector
from consilia.learning.flat import FlatModel
from consilia.learning.models import build as build_model
from consilia.learning.models import problems
from consilia.learning.work import LocalWork
from consilia.pipeline.chain import Chain, Protection, build
from consilia.plan.check import check
from consilia.plan.protection import protection_of
from consilia.plan.rules import broken
from consilia.plan.run_plan import RunPlan, SiteHalf
from consilia.plan.schema import Plan
from consilia.rounds.entropy import Entropy
from consilia.rounds.learner import TorchLearner
from consilia.rounds.mechanism import event_that_runs, require_covered
from consilia.rounds.rows import SiteRows, site_rows
from consilia.rounds.site import Site
from consilia.store.ledger_store import SiteStore
from consilia.transport.inprocess import InProcess


@dataclass(frozen=True)
class Prepared:
    """A checked plan with what a simulation needs beside it."""

    run_plan: RunPlan
    rows: Mapping[str, SiteRows]
    model: FlatModel
    initial: Vector

    @property
    def chain(self) -> Chain:
        """The pipeline that both ends build from the plan's public numbers."""
        return build(UpdateSpec(self.run_plan.spec.segments), self.protection)

    @property
    def protection(self) -> Protection:
        """The public numbers that it is built from."""
        plan = self.run_plan
        control_dim = self.model.dim if plan.plan.training.scaffold else 0
        return protection_of(plan.plan, plan.sites, plan.noise_multiplier, control_dim=control_dim)


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
    module = build_model(
        config.name, input_shape=table.input_shape, classes=len(table.classes), hidden=tuple(config.hidden),
        activation=config.activation, seed=SharedSeed.of(plan.run.seed).derive("model").integer(),
    )  # fmt: skip
    unfit = problems(module, unit=plan.privacy.unit, input_shape=table.input_shape)
    if unfit:
        raise PlanError(unfit)
    model = FlatModel(module, config.local_layers)
    if model.batch_statistics and config.local_layers != "norm" and not _plain_average(plan):
        raise PlanError.of(
            "plan key training.server_optimizer",
            needs='plain averaging for shared BatchNorm statistics (fedavg, "sgd", server_learning_rate = 1)',
            got=f'{plan.training.algorithm} with "{plan.training.server_optimizer}"',
            hint='Keep the norm layers at the sites (model.local_layers = "norm"), or use GroupNorm',
        )
    run_plan = check(
        plan, counts={site: len(part.train) for site, part in rows.items()}, input_shape=table.input_shape,
        classes=len(table.classes), segments=model.segments,
    )  # fmt: skip
    return Prepared(run_plan, rows, model, model.get())


def _plain_average(plan: Plan) -> bool:
    # A running variance is an average, not a weight: a step of another kind could make it negative.
    training = plan.training
    return (
        training.algorithm == "fedavg" and training.server_optimizer == "sgd" and training.server_learning_rate == 1.0
    )


def local_work(half: SiteHalf) -> LocalWork:
    """Translate the plan into one site's work."""
    training, privacy, terms = half.plan.training, half.plan.privacy, half.terms
    record = privacy.unit == "record"
    return LocalWork(
        algorithm=training.algorithm, batch=training.batch, batch_size=training.batch_size,
        sampling_rate=training.sampling_rate, batch_cap=terms.batch_cap, expected_batch=terms.expected_batch,
        steps=terms.steps, optimizer=training.optimizer, learning_rate=training.learning_rate, momentum=training.momentum,
        weight_decay=training.weight_decay, proximal_mu=training.proximal_mu,
        clip_norm=privacy.clip_norm if record else None,
        noise_multiplier=half.noise_multiplier if record and privacy.noise == "site" else 0.0,
    )  # fmt: skip


def entropy_of(plan: Plan) -> Entropy:
    """Return the operating system's randomness, or the public seed's in the reproducible mode."""
    return Entropy(SharedSeed.of(plan.run.seed).derive("reproducible") if plan.run.reproducible else None)


class Simulation:
    """All sites of a run, ready to answer; closes their ledgers on exit."""

    def __init__(self, prepared: Prepared, *, run: str, home: Path) -> None:
        plan = prepared.run_plan
        entropy, seed = entropy_of(plan.plan), SharedSeed.of(plan.plan.run.seed)
        scaffold = plan.plan.training.scaffold
        self._population = plan.population
        stateful = scaffold or plan.plan.model.local_layers != "none"
        protection = prepared.protection
        chain, digest, self._stores, self.sites = prepared.chain, LastDigest(), [], {}
        try:
            for terms in plan.sites:
                half = plan.site(terms.name)
                rows = prepared.rows[terms.name]
                if len(rows.train) > terms.count:
                    raise PlanError.of(f"site {terms.name}", needs=f"at most its registered {terms.count} training rows",
                                       got="more", hint="Register a larger count in sites.counts")  # fmt: skip
                work, own = local_work(half), terms.weight * protection.site_bound(terms.name)
                require_covered(half, event_that_runs(protection.unit, work, chain, own=own, rows=terms.count))
                learner = TorchLearner(
                    prepared.model, rows.train, rows.test, work, seed=seed.derive("site", terms.name),
                    scaffold=scaffold,
                )  # fmt: skip
                store = None
                if stateful or half.charge.round_event is not None:
                    store = SiteStore.open(home / "sites" / f"{terms.name}.sqlite", terms.name)
                    self._stores.append(store)
                site = Site(
                    half, run=run, learner=learner, chain=chain, payload_dim=prepared.model.dim * (2 if scaffold else 1),
                    store=store, entropy=entropy, fingerprint=rows.train.fingerprint() if store else "", digest=digest,
                )  # fmt: skip
                self.sites[terms.name] = site
            # All are asked before any books: a run that one ledger refuses costs the others nothing.
            for site in self.sites.values():
                site.require_room()
        except BaseException:
            self.close()
            raise
        self.transport = InProcess({name: site.handle for name, site in self.sites.items()}, time.monotonic)

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
