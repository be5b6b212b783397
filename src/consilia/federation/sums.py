"""Which kind of sum a plan asks for, and its two halves."""

import time
from collections.abc import Callable, Mapping, Sequence

from consilia.core.canonical import Json
from consilia.core.errors import PlanError
from consilia.crypto.attestation.policy import Policy
from consilia.federation.means import Means
from consilia.plan.ciphers import paillier_lanes, rlwe_parameters
from consilia.plan.run_plan import RunPlan, SiteHalf
from consilia.rounds.asynchronous.aside import Aside
from consilia.rounds.asynchronous.buffered import Buffered
from consilia.rounds.asynchronous.two_phase import TwoPhase, readiness
from consilia.rounds.clear import Clear
from consilia.rounds.entropy import Entropy
from consilia.rounds.gather import Gatherer
from consilia.rounds.pipelines import Pipeline
from consilia.rounds.secure.attested import AttestedSums
from consilia.rounds.secure.attested_site import AttestedSite
from consilia.rounds.secure.cipher import CipherSums
from consilia.rounds.secure.cipher_site import CipherSite
from consilia.rounds.secure.cohorts import by_schedule, cohorts_of
from consilia.rounds.secure.masked import MaskedSums
from consilia.rounds.secure.masked_site import MaskedSite
from consilia.rounds.secure.paillier import PaillierCoordinator, PaillierSite
from consilia.rounds.secure.ports import SiteSum
from consilia.rounds.secure.rlwe import RlweCoordinator, RlweSite
from consilia.rounds.secure.schemes import CoordinatorScheme, SiteScheme
from consilia.rounds.secure.sessions import Party
from consilia.rounds.secure.signed import run_context
from consilia.secagg.transcript import Entry
from consilia.store.ledger_store import SiteStore


def own_share(half: SiteHalf, held: int) -> float:
    """Return the weight that a site gives its own update in a secure sum.

    Without a claim it may count its true rows, which ride along in the sum; under a claim the registered number counts.
    """
    plan, terms = half.plan, half.terms
    if plan.privacy.unit == "none" and plan.aggregation.weights == "n" and half.secure is not None:
        return terms.weight * held / terms.count
    return terms.weight


def site_sum(
    plan: RunPlan, half: SiteHalf, party: Party, *, run: str, share: float, store: SiteStore, entropy: Entropy,
    pipelines: Sequence[Pipeline], policy: Policy | None, alone: bool,
) -> SiteSum:  # fmt: skip
    """Return a site's half of the plan's secure sum; `alone`: it has a process of its own."""
    secure = half.secure
    if secure is None:
        raise TypeError("a plan with a secure sum has its terms")  # plan.check sees to it
    if secure.mode == "masks":
        return MaskedSite(
            half, secure, run=run, party=party, cohort=cohorts_of(plan, secure, half.terms.name), share=share,
            store=store.sessions, entropy=entropy, alone=alone,
        )  # fmt: skip
    context, cohort = run_context(run, plan.digest, party.roster), by_schedule(plan)
    scheme: SiteScheme
    match secure.mode:
        case "attested" if policy is not None:
            return AttestedSite(
                half, identity=party.identity, run_context=context, policy=policy, pipelines=pipelines, entropy=entropy,
                now=_now,
            )  # fmt: skip
        case "paillier":
            lanes = paillier_lanes(secure, plan.plan.secure_sum.key_bits, len(plan.sites))
            scheme = PaillierSite(party.identity, party.roster, lanes, context, secure.fewest)
        case "rlwe":
            scheme = RlweSite(party.identity, party.roster, rlwe_parameters(secure), context)
        case _:
            raise _no_way(secure.mode)
    return CipherSite(
        half, secure, name=half.terms.name, sites=len(plan.sites), run_context=context, cohort=cohort, share=share,
        scheme=scheme, entropy=entropy,
    )  # fmt: skip


def gatherer_of(
    plan: RunPlan, means: Means, *, run: str, entropy: Entropy, records: Callable[[], Sequence[Mapping[str, Json]]],
    pipelines: Sequence[Pipeline],
) -> Gatherer | TwoPhase:  # fmt: skip
    """Return what asks the sites of a run and adds what comes.

    Args:
        plan: The checked plan.
        means: The transport, and the keys where there is a secure sum.
        run: Id of the run.
        entropy: Source of secret randomness.
        records: Reads the rounds so far: the transcript goes on from them.
        pipelines: Each phase's pipeline.
    """
    secure, mode = plan.secure, plan.plan.aggregation.mode
    if mode == "buffered":
        return Buffered(plan, run=run, pipelines=pipelines, transport=means.transport)
    ready = readiness(plan, run=run, transport=means.transport) if mode == "two-phase" else None
    transport = means.transport if ready is None else Aside(means.transport, ready.take)
    if secure is None:
        clear = Clear(plan, run=run, pipelines=pipelines, transport=transport)
        return clear if ready is None else TwoPhase(plan, ready, clear)
    if means.roster is None or means.signing is None:
        raise TypeError("a run with a secure sum has a roster and a key of its coordinator")  # its means see to it
    if secure.mode == "masks":
        masked = MaskedSums(
            plan, secure, run=run, transport=transport, roster=means.roster, signing=means.signing,
            entropy=entropy, entries=lambda: _entries(records()),
        )  # fmt: skip
        return masked if ready is None else TwoPhase(plan, ready, masked)
    context = run_context(run, plan.digest, means.roster)
    names = tuple(sorted(terms.name for terms in plan.sites))
    scheme: CoordinatorScheme
    match secure.mode:
        case "attested" if means.policy is not None and means.attester is not None:
            return AttestedSums(
                plan, secure, run=run, pipelines=pipelines, transport=means.transport, run_context=context,
                roster=means.roster, attester=means.attester, max_age=means.policy.max_age, now=_now,
            )  # fmt: skip
        case "paillier":
            lanes = paillier_lanes(secure, plan.plan.secure_sum.key_bits, len(plan.sites))
            scheme = PaillierCoordinator(names, lanes, secure.fewest)
        case "rlwe":
            scheme = RlweCoordinator(names, rlwe_parameters(secure))
        case _:
            raise _no_way(secure.mode)
    return CipherSums(
        plan, secure, run=run, transport=means.transport, run_context=context, scheme=scheme, entropy=entropy,
    )  # fmt: skip


def _entries(records: Sequence[Mapping[str, Json]]) -> list[Entry]:
    return [Entry.from_json(record["transcript"]) for record in records if record.get("transcript") is not None]


def _no_way(mode: str) -> PlanError:
    return PlanError.of(f'plan key secure_sum.mode = "{mode}"', needs="what the mode sums with", got="nothing",
                        hint="Attested sums need a policy and the hardware that it speaks of")  # fmt: skip


def _now() -> int:
    return int(time.time())
