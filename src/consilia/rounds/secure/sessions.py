"""Who takes part in secure sums, and the session that both ends derive for each of them."""

from dataclasses import dataclass

from consilia.plan.run_plan import RunPlan, SiteHalf
from consilia.plan.secure import SecureTerms
from consilia.rounds.secure.shape import shape_of
from consilia.secagg.params import Session
from consilia.secagg.roster import Identity, Roster


@dataclass(frozen=True)
class Party:
    """What a site brings along: its keys, and whom it believes.

    Attributes:
        identity: Its own keys.
        roster: All sites' public keys, signed by the consortium.
        consortium: The consortium's public Ed25519 key, from the site's own configuration.
        coordinator: The coordinator's public Ed25519 key, likewise.
    """

    identity: Identity
    roster: Roster
    consortium: bytes
    coordinator: bytes


def session_of(
    plan: RunPlan | SiteHalf,
    secure: SecureTerms,
    *,
    run: str,
    purpose: str,
    round_number: int,
    model_digest: str,
    session_id: bytes,
    roster: Roster,
    cohort: tuple[str, ...],
) -> Session:
    """Return what a sum is about: all but the model and `session_id` follows from the plan and the roster.

    Raises:
        PlanError: If so small a cohort can have no such sum.
    """
    if secure.ring is None:
        raise TypeError("a sum under masks has a ring")  # plan.check sees to it
    fewest = len(cohort) - secure.dropouts
    if plan.plan.aggregation.mode == "two-phase":
        fewest = max(fewest, secure.fewest)  # a cohort that is smaller from the start has used up what may drop out
    return Session(
        run=run, round=round_number, purpose=purpose, plan_digest=plan.digest, model_digest=model_digest, roster=roster,
        cohort=cohort, session_id=session_id, adversary=secure.adversary, fewest=fewest,
        colluders=secure.colluders, ring=secure.ring,
        dim=shape_of(plan, secure, purpose, round_number, len(roster.members)).dim,
    )  # fmt: skip
