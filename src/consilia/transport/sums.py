"""Which kind of sum a plan asks for, and its two halves."""

from collections.abc import Mapping, Sequence

from consilia.core.canonical import Json
from consilia.plan.run_plan import RunPlan, SiteHalf
from consilia.rounds.entropy import Entropy
from consilia.rounds.gather import Gatherer
from consilia.rounds.ports import Transport
from consilia.rounds.secure.masked import MaskedSums
from consilia.rounds.secure.masked_site import MaskedSite
from consilia.rounds.secure.ports import SiteSum
from consilia.rounds.secure.shape import UPDATE
from consilia.secagg.transcript import Entry
from consilia.store.ledger_store import SiteStore
from consilia.transport.consortium import Consortium


def own_share(half: SiteHalf, held: int) -> float:
    """Return the weight that a site gives its own update in a secure sum.

    Without a claim it may count its true rows, which ride along in the sum; under a claim the registered number counts.
    """
    plan, terms = half.plan, half.terms
    if plan.privacy.unit == "none" and plan.aggregation.weights == "n" and half.secure is not None:
        return terms.weight * held / terms.count
    return terms.weight


def site_sum(
    plan: RunPlan, half: SiteHalf, consortium: Consortium, *, run: str, share: float, store: SiteStore, entropy: Entropy
) -> SiteSum:
    """Return a site's half of the plan's secure sum."""
    everyone = tuple(sorted(terms.name for terms in plan.sites))

    def cohort(purpose: str, round_number: int) -> tuple[str, ...]:
        if purpose != UPDATE:
            return everyone
        return tuple(sorted(plan.schedule[round_number - 1])) if 0 < round_number <= len(plan.schedule) else ()

    if half.secure is None:
        raise TypeError("a plan with a secure sum has its terms")  # plan.check sees to it
    return MaskedSite(
        half, half.secure, run=run, party=consortium.parties[half.terms.name], cohort=cohort, share=share,
        store=store.sessions, entropy=entropy,
    )  # fmt: skip


def gatherer_of(
    plan: RunPlan, consortium: Consortium | None, *, run: str, transport: Transport, entropy: Entropy,
    records: Sequence[Mapping[str, Json]],
) -> Gatherer | None:  # fmt: skip
    """Return the coordinator's half of the plan's secure sum; None where updates come in the clear.

    Args:
        plan: The checked plan.
        consortium: The keys, where there is a secure sum.
        run: Id of the run.
        transport: Moves bytes to and from sites.
        entropy: Source of secret randomness.
        records: The rounds so far: the transcript goes on from them.
    """
    if plan.secure is None or consortium is None:
        return None
    entries = [Entry.from_json(record["transcript"]) for record in records if record.get("transcript") is not None]
    return MaskedSums(
        plan, plan.secure, run=run, transport=transport, roster=consortium.roster, signing=consortium.signing,
        entropy=entropy, entries=entries,
    )  # fmt: skip
