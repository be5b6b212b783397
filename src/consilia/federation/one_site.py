"""One site of a run, put together from its own rows, ledger and keys: the same for simulated and for real ones."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from consilia.core.canonical import Json
from consilia.core.errors import PlanError
from consilia.core.randomness import SharedSeed
from consilia.core.update import Bytes
from consilia.crypto.attestation.policy import Policy
from consilia.data.patients import Patients
from consilia.data.table import Table
from consilia.dp.event import AnyEvent
from consilia.federation.assemble import Assembled
from consilia.federation.sums import own_share, site_sum
from consilia.learning.flat import FlatModel
from consilia.learning.stacking.work import StackWork
from consilia.learning.work import LocalWork
from consilia.plan.phases import Phase
from consilia.plan.run_plan import RunPlan, SiteHalf
from consilia.plan.schema import Plan
from consilia.plan.stack_work import stack_shape, stack_work
from consilia.rounds.entropy import Entropy
from consilia.rounds.learner import TorchLearner
from consilia.rounds.mechanism import event_that_runs, require_covered
from consilia.rounds.model_check import Expected, KeptInStore, ModelCheck
from consilia.rounds.ports import Learner
from consilia.rounds.rates import site_factor
from consilia.rounds.rows import SiteRows
from consilia.rounds.secure.sessions import Party
from consilia.rounds.site import Site
from consilia.rounds.stack_learner import StackLearner
from consilia.store.ledger_store import SiteStore
from consilia.store.sessions import Sessions


def keeps_a_store(plan: RunPlan, name: str) -> bool:
    """Return True if a site of this run must remember something: charges, sums, or what it keeps from round to round."""
    config = plan.plan
    stateful = config.training.scaffold or config.model.local_layers != "none" or config.messages.top_k is not None
    stateful = stateful or config.aggregation.mode == "two-phase"  # updates wait there
    return stateful or plan.secure is not None or plan.charges[name].booked


def site_of(
    assembled: Assembled, name: str, rows: SiteRows, *, run: str, store: SiteStore | None, party: Party | None,
    policy: Policy | None, entropy: Entropy, digest: Callable[[Bytes], str],
    own: Callable[[Mapping[str, Json]], None] | None, alone: Sessions | None = None,
) -> Site:  # fmt: skip
    """Put one site together.

    Args:
        assembled: The checked plan and its model.
        name: The site.
        rows: Its rows, and nobody else's.
        run: Id of the run.
        store: Its ledger; None where `keeps_a_store` says that it needs none.
        party: Its keys and whom it believes; None without a secure sum.
        policy: What it holds attested code to; None for other sums.
        entropy: Source of secret randomness.
        digest: SHA-256 in hex.
        own: Takes the site's own numbers, which a secure sum hides from the coordinator; they stay here.
        alone: The site's file, where it has a process of its own: sums under way and the last model that it accepted are kept
            over its restarts. None for simulated sites: a kill ends them all at once, and their coordinator is no stranger.

    Raises:
        PlanError: If it holds more rows than are registered for it, or if what would run is not what is charged.
    """
    plan = assembled.run_plan
    half, terms = plan.site(name), plan.site(name).terms
    heaviest = max(known.weight for known in plan.sites)
    held = units(plan.plan, rows.train)
    if held > terms.count:
        raise PlanError.of(f"site {name}", needs=f"at most its registered {terms.count} training rows",
                           got="more", hint="Register a larger count in sites.counts")  # fmt: skip
    steps, stack = assembled.pipelines, stack_of(half, rows.train)
    for phase, step in zip(plan.phases, steps, strict=True):
        weighted = terms.weight * step.protection.site_bound(name)
        runs: AnyEvent | None = stack.event if stack is not None else event_that_runs(
            step.protection.unit, local_work(half, phase), step.chain, own=weighted, units=held, heaviest=heaviest,
        )  # fmt: skip
        require_covered(half, phase, runs)
    learner = learner_of(assembled.model, half, rows, len(plan.schedule))
    share = own_share(half, held) / heaviest
    sums = None
    if party is not None and store is not None:
        sums = site_sum(
            plan,
            half,
            party,
            run=run,
            share=share,
            store=store,
            entropy=entropy,
            pipelines=steps,
            policy=policy,
            alone=alone is not None,
        )
    kept = None if alone is None else KeptInStore(alone, run)
    return Site(
        half, run=run, learner=learner, pipelines=steps, payload_dim=assembled.payload_dim, store=store,
        entropy=entropy, fingerprint=rows.train.fingerprint() if store else "", digest=digest, share=share, sums=sums,
        own=own if sums is not None else None, models=ModelCheck(name, assembled.looks, _expected(assembled, half), kept),
    )  # fmt: skip


def _expected(assembled: Assembled, half: SiteHalf) -> Expected:
    plan, mine = assembled.run_plan, half.terms.phases
    work = max(
        phase.steps / max(mine[place].steps, 1) for site in plan.sites for place, phase in enumerate(site.phases)
    )
    scores = half.plan.evaluation
    back = 0 if scores.stop_loss is None else 2 * scores.every
    return Expected(assembled.steps, lambda number: half.phase(number).index, len(plan.schedule), work, back)


def learner_of(model: FlatModel, half: SiteHalf, rows: SiteRows, rounds: int) -> Learner:
    """Return what trains on a site's rows.

    Args:
        model: The plan's; its values are overwritten whenever a site trains.
        half: The site's half of the plan.
        rows: Its rows.
        rounds: Length of the run.
    """
    plan, stack = half.plan, stack_of(half, rows.train)
    if stack is not None:
        return StackLearner(model, rows.train, rows.test, stack)
    return TorchLearner(
        model, rows.train, rows.test, work_of(half, rounds), scaffold=plan.training.scaffold,
        seed=SharedSeed.of(plan.run.seed).derive("site", half.terms.name), by_patient=plan.privacy.unit == "patient",
    )  # fmt: skip


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
