"""The clauses of a policy, one function each: what it allows, what a plan asks, and whether that will do."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from consilia.dp.ledger import Relation
from consilia.plan.policy import Policy
from consilia.plan.rules_privacy import against
from consilia.plan.run_plan import RunPlan, SiteHalf
from consilia.plan.schema import Plan

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
class Case:
    """A checked plan before a policy.

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

    def epsilon(self, against: str) -> float:
        """Return what the run costs this site; infinity where nothing bounds it, or anyone can recompute the noise."""
        bound = self.half.charge.epsilon.get(against)
        return math.inf if bound is None or self.half.plan.run.reproducible else bound


def approval(policy: Policy, digest: str, approved: frozenset[str] | set[str]) -> Clause:
    """Return the clause on a steward's word."""
    mode = policy.approval.mode
    listed = mode == "unless-listed" and digest in policy.approval.digests
    known = digest in approved
    given = "a steward approved it" if known else "the policy lists it" if listed else "no steward gave it"
    return Clause(
        "approval.mode", mode, f"for the approval of digest {digest}: {given}", mode == "never" or listed or known
    )


def _sets(policy: Policy, plan: Plan) -> Clause:
    allowed, asked = policy.data.sets, _data_set(plan)
    return Clause("data.sets", _names(allowed), asked, allowed is None or asked in allowed)


def _features(policy: Policy, plan: Plan) -> Clause:
    allowed = policy.data.features
    asked = sorted({*plan.data.numeric, *plan.data.categories})
    beyond = [] if allowed is None else [name for name in asked if name not in allowed]
    return Clause("data.features", _names(allowed), _names(beyond or asked), not beyond)


def _labels(policy: Policy, plan: Plan) -> Clause:
    label, allowed = plan.data.label, policy.data.labels
    return Clause("data.labels", _names(allowed), label or "none", label is None or allowed is None or label in allowed)


def _model(policy: Policy, plan: Plan) -> Clause:
    allowed, name = policy.model.names, model_name(plan)
    fits = ":" not in name if allowed is None else name in allowed
    return Clause("model.names", "those of Consilia" if allowed is None else _names(allowed), name, fits)


def _unit(policy: Policy, plan: Plan) -> Clause:
    least, unit = policy.privacy.unit, plan.privacy.unit
    return Clause("privacy.unit", least, unit, _UNITS.index(unit) >= _UNITS.index(least))


def _against(policy: Policy, plan: Plan) -> Clause:
    privacy, claimed = policy.privacy, against(plan)
    fits = privacy.against in _COVERS[claimed] or math.isinf(privacy.max_epsilon_run)
    return Clause("privacy.against", privacy.against, claimed, fits)


def _delta(policy: Policy, plan: Plan) -> Clause:
    most, delta = policy.privacy.max_delta, plan.privacy.delta or 0.0
    fits = delta <= most or math.isinf(policy.privacy.max_epsilon_run)
    return Clause("privacy.max_delta", _number(most), _number(delta), fits)


def _noise(policy: Policy, plan: Plan) -> Clause:
    least, asked = policy.privacy.noise, plan.privacy.noise
    fits = _PLACES.index(asked) >= _PLACES.index(least) or policy.privacy.unit == "none"
    return Clause("privacy.noise", least, asked if plan.privacy.unit != "none" else "none", fits)


def _reproducible(policy: Policy, plan: Plan) -> Clause:
    privacy, asked = policy.privacy, plan.run.reproducible
    fits = not asked or privacy.reproducible or _public(policy, plan) or privacy.unit == "none"
    return Clause("privacy.reproducible", _word(privacy.reproducible), _word(asked), fits)


def _mode(policy: Policy, plan: Plan) -> Clause:
    modes, mode = policy.secure_sum.modes, plan.secure_sum.mode
    fits = mode in modes or ("none" in modes and not _counts_on_sum(policy, plan))
    return Clause("secure_sum.modes", _names(modes), mode, fits)


def _passive(policy: Policy, plan: Plan) -> Clause:
    passive = plan.secure_sum.mode == "masks" and plan.secure_sum.adversary == "passive"
    needless = "none" in policy.secure_sum.modes and not _counts_on_sum(policy, plan)
    fits = not passive or policy.secure_sum.passive or needless
    return Clause("secure_sum.passive", _word(policy.secure_sum.passive), _word(passive), fits)


def _metrics(policy: Policy, plan: Plan) -> Clause:
    most, asked = policy.evaluation.metrics, plan.evaluation.metrics
    return Clause("evaluation.metrics", most, asked, _METRICS.index(asked) >= _METRICS.index(most))


def _least(case: Case) -> Clause:
    least, sites = case.policy.sites.least, len(case.plan.sites)
    return Clause("sites.least", f"{least}", f"{sites}", sites >= least)


def _answers(case: Case) -> Clause:
    least = case.policy.sites.least_answers
    fewest = 1 if case.half.secure is None else case.half.secure.fewest
    return Clause("sites.least_answers", f"{least}", f"sums of {fewest}", fewest >= least)


def _rounds(case: Case) -> Clause:
    most, rounds = case.policy.training.max_rounds, len(case.plan.schedule)
    return Clause("training.max_rounds", f"{most}", f"{rounds}", rounds <= most)


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


EARLY: tuple[Callable[[Policy, Plan], Clause], ...] = (
    _sets, _features, _labels, _model, _unit, _against, _delta, _noise, _reproducible, _mode, _passive, _metrics,
)  # fmt: skip
LATE: tuple[Callable[[Case], Clause], ...] = (_least, _answers, _rounds, _epsilon_run, _epsilon_set)


def _data_set(plan: Plan) -> str:
    return plan.sites.population or plan.data.source


def _public(policy: Policy, plan: Plan) -> bool:
    """Return whether the rows are public: a built-in table under its own name, or a data set that the steward says is."""
    built_in = plan.data.source in _BUILT_IN and _data_set(plan) == plan.data.source
    return built_in or _data_set(plan) in policy.data.public


def _counts_on_sum(policy: Policy, plan: Plan) -> bool:
    """Return True if a bound that the policy asks for would not hold if the coordinator saw single answers."""
    return policy.privacy.unit != "none" and plan.privacy.noise == "distributed"


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


def model_name(plan: Plan) -> str:
    """Return what a policy calls the plan's model."""
    return "stack" if plan.training.algorithm == "stacking" else plan.model.name
