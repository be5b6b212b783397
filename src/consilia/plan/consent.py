"""Whether a site takes part in a plan: its policy against what the site itself worked out from the plan.

Nothing here is told by a coordinator: the checked plan is the one that this site's installed code built, with the digest that
both ends compared.
"""

import math
from dataclasses import dataclass
from typing import Literal

from consilia.plan.clauses import EARLY, LATE, Case, Clause, Spent, approval
from consilia.plan.policy import Policy
from consilia.plan.run_plan import RunPlan, SiteHalf
from consilia.plan.schema import Plan

Answer = Literal["accepted", "waiting", "refused"]


@dataclass(frozen=True)
class Verdict:
    """What a site answers to an offer.

    Attributes:
        answer: waiting: only a steward's approval is missing.
        weighed: Every clause.
    """

    answer: Answer
    weighed: tuple[Clause, ...]

    @property
    def clauses(self) -> tuple[str, ...]:
        """Every clause that the plan breaks, with its key, its value and what the plan asks."""
        return tuple(str(clause) for clause in self.weighed if not clause.holds)


def first_look(policy: Policy, plan: Plan) -> tuple[str, ...]:
    """Return the clauses that a plan breaks whatever follows from it: asked before a row is read or a model is built."""
    return tuple(str(clause) for clause in (early(policy, plan) for early in EARLY) if not clause.holds)


def judge(
    policy: Policy, half: SiteHalf, run_plan: RunPlan, *, spent: Spent, approved: frozenset[str] | set[str]
) -> Verdict:
    """Return whether the site takes part.

    Args:
        policy: The site's.
        half: The site's half of the plan.
        run_plan: The plan as this site's installed code checked it.
        spent: What the ledger of the data set holds, without this run: `SiteStore.spent`.
        approved: Digests that a steward approved.

    Guarantees:
        Pure. Accepted only if every clause holds and, unless the policy asks for none, the digest is approved: a plan that
        differs in one byte, in a registered count or in the model's architecture has another digest.
    """
    case = Case(policy, half, run_plan, spent)
    weighed = (*(early(policy, half.plan) for early in EARLY), *(late(case) for late in LATE))
    word = approval(policy, run_plan.digest, approved)
    if not all(clause.holds for clause in weighed):
        return Verdict("refused", (*weighed, word) if word.holds else weighed)
    return Verdict("accepted" if word.holds else "waiting", (*weighed, word))


def ledger_limit(policy: Policy, data_set: str) -> float | None:
    """Return the limit that the data set's ledger itself must hold runs to: two of them may be judged at the same time."""
    limit = policy.limit(data_set)
    return None if math.isinf(limit) else limit
