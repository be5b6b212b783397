"""Whether a site takes part in a plan: its policy against what the site itself worked out from the plan.

Nothing here is told by a coordinator: the checked plan is the one that this site's installed code built, with the digest that
both ends compared.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from consilia.dp.ledger import Relation
from consilia.plan.policy import Policy
from consilia.plan.run_plan import RunPlan, SiteHalf

Answer = Literal["accepted", "waiting", "refused"]
Spent = Mapping[Relation, tuple[float, float]]

_BUILT_IN = ("heart", "adult")
_UNITS = ("none", "record", "patient", "site")
_PLACES = ("server", "distributed", "site")
_METRICS = ("public", "charged", "hidden")
# What an adversary sees, the other adversaries that see no more: a bound against it is one against them.
_COVERS: Mapping[str, tuple[str, ...]] = {
    "server+colluding-sites": ("server+colluding-sites", "server", "world"),
    "server": ("server", "world"),
    "other-sites": ("world",),
    "world": ("world",),
}


@dataclass(frozen=True)
class Clause:
    """One clause of a policy beside what a plan asks.

    Attributes:
        key: The policy's key.
        allows: Its value.
        asks: What the plan asks.
        holds: Whether the plan keeps it.
    """

    key: str
    allows: str
    asks: str
    holds: bool

    def __str__(self) -> str:
        return f"policy key {self.key}: {self.allows}; the plan asks {self.asks}"


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


@dataclass(frozen=True)
class Case:
    """A plan before a policy.

    Attributes:
        policy: The site's.
        half: The site's half of the plan.
        plan: All of it.
        spent: What the data set's ledger holds.
    """

    policy: Policy
    half: SiteHalf
    plan: RunPlan
    spent: Spent

    @property
    def public(self) -> bool:
        """Whether the rows are public: a built-in table under its own name, or a data set that the steward says is."""
        own = self.half.plan.data.source
        built_in = own in _BUILT_IN and self.half.population == own
        return built_in or self.half.population in self.policy.data.public

    def epsilon(self, against: str) -> float:
        """Return what the run costs this site; infinity where nothing bounds it, or anyone can recompute the noise."""
        bound = self.half.charge.epsilon.get(against)
        return math.inf if bound is None or self.half.plan.run.reproducible else bound


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
    weighed = tuple(clause(case) for clause in CLAUSES)
    approval = _approval(case, approved)
    if not all(clause.holds for clause in weighed):
        return Verdict("refused", (*weighed, approval) if approval.holds else weighed)
    return Verdict("accepted" if approval.holds else "waiting", (*weighed, approval))


def ledger_limit(policy: Policy, data_set: str) -> float | None:
    """Return the limit that the data set's ledger itself must hold runs to: two of them may be judged at the same time."""
    limit = policy.limit(data_set)
    return None if math.isinf(limit) else limit


def _approval(case: Case, approved: frozenset[str] | set[str]) -> Clause:
    mode, digest = case.policy.approval.mode, case.plan.digest
    listed = mode == "unless-listed" and digest in case.policy.approval.digests
    known = digest in approved
    given = "a steward approved it" if known else "the policy lists it" if listed else "no steward gave it"
    asks = f"for the approval of digest {digest}: {given}"
    return Clause("approval.mode", mode, asks, mode == "never" or listed or known)


def _least(case: Case) -> Clause:
    least, sites = case.policy.sites.least, len(case.plan.sites)
    return Clause("sites.least", f"{least}", f"{sites}", sites >= least)


def _answers(case: Case) -> Clause:
    least = case.policy.sites.least_answers
    fewest = 1 if case.half.secure is None else case.half.secure.fewest
    return Clause("sites.least_answers", f"{least}", f"sums of {fewest}", fewest >= least)


def _sets(case: Case) -> Clause:
    allowed = case.policy.data.sets
    return Clause(
        "data.sets", _names(allowed), case.half.population, allowed is None or case.half.population in allowed
    )


def _features(case: Case) -> Clause:
    data, allowed = case.half.plan.data, case.policy.data.features
    asked = sorted({*data.numeric, *data.categories})
    beyond = [] if allowed is None else [name for name in asked if name not in allowed]
    return Clause("data.features", _names(allowed), _names(beyond or asked), not beyond)


def _labels(case: Case) -> Clause:
    label, allowed = case.half.plan.data.label, case.policy.data.labels
    return Clause("data.labels", _names(allowed), label or "none", label is None or allowed is None or label in allowed)


def _model(case: Case) -> Clause:
    allowed, name = case.policy.model.names, model_name(case.half)
    fits = ":" not in name if allowed is None else name in allowed
    return Clause("model.names", "those of Consilia" if allowed is None else _names(allowed), name, fits)


def _rounds(case: Case) -> Clause:
    most, rounds = case.policy.training.max_rounds, len(case.plan.schedule)
    return Clause("training.max_rounds", f"{most}", f"{rounds}", rounds <= most)


def _unit(case: Case) -> Clause:
    least, unit = case.policy.privacy.unit, case.half.plan.privacy.unit
    return Clause("privacy.unit", least, unit, _UNITS.index(unit) >= _UNITS.index(least))


def _against(case: Case) -> Clause:
    privacy, claimed = case.policy.privacy, case.half.against
    fits = privacy.against in _COVERS[claimed] or math.isinf(privacy.max_epsilon_run)
    return Clause("privacy.against", privacy.against, claimed, fits)


def _epsilon_run(case: Case) -> Clause:
    most, epsilon = case.policy.privacy.max_epsilon_run, case.epsilon(case.policy.privacy.against)
    return Clause("privacy.max_epsilon_run", _number(most), _bound(epsilon), epsilon <= most)


def _epsilon_set(case: Case) -> Clause:
    most, mine = case.policy.limit(case.half.population), Relation(case.half.adjacency, case.half.against)
    key = "privacy.max_epsilon_set" + "s" * (case.half.population in case.policy.privacy.max_epsilon_sets)
    before = case.spent.get(mine, (0.0, 0.0))[0]
    run = case.epsilon(case.half.against)
    others = sorted(str(relation) for relation in case.spent if relation != mine)
    asks = f"{_bound(run)} after {_bound(before)} of earlier runs" + (
        f" and others, {', '.join(others)}" if others else ""
    )
    # Bounds of another kind do not add up: no sum over them can be held against a limit.
    fits = math.isinf(most) or (not others and _exact(before) + _exact(run) <= _exact(most))
    return Clause(key, _number(most), asks, fits)


def _delta(case: Case) -> Clause:
    privacy, delta = case.policy.privacy, case.half.plan.privacy.delta or 0.0
    fits = delta <= privacy.max_delta or math.isinf(privacy.max_epsilon_run)
    return Clause("privacy.max_delta", _number(privacy.max_delta), _number(delta), fits)


def _noise(case: Case) -> Clause:
    least, privacy = case.policy.privacy.noise, case.half.plan.privacy
    fits = _PLACES.index(privacy.noise) >= _PLACES.index(least) or case.policy.privacy.unit == "none"
    return Clause("privacy.noise", least, privacy.noise if privacy.unit != "none" else "none", fits)


def _reproducible(case: Case) -> Clause:
    privacy, asked = case.policy.privacy, case.half.plan.run.reproducible
    fits = not asked or privacy.reproducible or case.public or privacy.unit == "none"
    return Clause("privacy.reproducible", _word(privacy.reproducible), _word(asked), fits)


def _mode(case: Case) -> Clause:
    modes, mode = case.policy.secure_sum.modes, case.half.plan.secure_sum.mode
    return Clause(
        "secure_sum.modes", _names(modes), mode, mode in modes or ("none" in modes and not _counts_on_sum(case))
    )


def _passive(case: Case) -> Clause:
    policy, asked = case.policy.secure_sum, case.half.plan.secure_sum
    passive = asked.mode == "masks" and asked.adversary == "passive"
    fits = not passive or policy.passive or ("none" in policy.modes and not _counts_on_sum(case))
    return Clause("secure_sum.passive", _word(policy.passive), _word(passive), fits)


def _metrics(case: Case) -> Clause:
    most, asked = case.policy.evaluation.metrics, case.half.plan.evaluation.metrics
    return Clause("evaluation.metrics", most, asked, _METRICS.index(asked) >= _METRICS.index(most))


CLAUSES: tuple[Callable[[Case], Clause], ...] = (
    _least, _answers, _sets, _features, _labels, _model, _rounds, _unit, _against, _epsilon_run, _epsilon_set, _delta, _noise,
    _reproducible, _mode, _passive, _metrics,
)  # fmt: skip


def model_name(half: SiteHalf) -> str:
    """Return what a policy calls the plan's model."""
    return "stack" if half.plan.training.algorithm == "stacking" else half.plan.model.name


def _counts_on_sum(case: Case) -> bool:
    """Return True if a bound that the policy asks for would not hold if the coordinator saw single answers."""
    return case.policy.privacy.unit != "none" and case.half.plan.privacy.noise == "distributed"


def _exact(value: float) -> Fraction | float:
    # Through the shortest decimal, as the ledger adds: 0.1 + 0.2 has to fit into 0.3.
    return Fraction(repr(float(value))) if math.isfinite(value) else math.inf


def _names(names: Sequence[str] | None) -> str:
    return "any" if names is None else ", ".join(names) or "none"


def _number(value: float) -> str:
    return f"{value:.6g}"


def _bound(value: float) -> str:
    return "no bound" if math.isinf(value) else f"epsilon {value:.6g}"


def _word(value: bool) -> str:
    return "true" if value else "false"
