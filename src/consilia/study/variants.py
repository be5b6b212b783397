"""One plan under each protection: the plans whose runs are compared."""

from dataclasses import dataclass
from typing import Any

from consilia.plan import load as plans
from consilia.plan.phases import total_rounds
from consilia.plan.schema import Plan

TITLES = {
    "plain": "plain",
    "dp": "DP at each site",
    "secure-sum": "secure sum",
    "secure-sum-dp": "secure sum + DP",
    "paillier": "Paillier",
    "rlwe": "threshold RLWE",
    "attested": "attested",
}
_MODES = {
    "secure-sum": "masks",
    "secure-sum-dp": "masks",
    "paillier": "paillier",
    "rlwe": "rlwe",
    "attested": "attested",
}
_NOISE = {"dp": "site", "secure-sum-dp": "distributed"}
# What each mode reads of [secure_sum]: what it does not read would be refused.
_READS = {
    "secure-sum": ("adversary", "dropouts", "colluders", "range", "value_bits"),
    "secure-sum-dp": ("adversary", "dropouts", "colluders"),
    "paillier": ("dropouts", "range", "value_bits", "key_bits"),
    "rlwe": ("dropouts", "range", "value_bits"),
    "attested": ("dropouts",),
}


@dataclass(frozen=True)
class Variant:
    """One row of a comparison.

    Attributes:
        name: As in `TITLES`.
        raw: Its plan as plain values, seed and policy still to come.
        refused: Why the plan cannot say it; empty where it can.
    """

    name: str
    raw: dict[str, Any]
    refused: str = ""

    def plan(self, seed: int, policy: str | None = None) -> Plan:
        """Return the plan of one run.

        Args:
            seed: run.seed.
            policy: attested: the file that says which evidence sites accept.

        Raises:
            PlanError: If it is none.
        """
        raw = {**self.raw, "run": {**self.raw["run"], "seed": seed}}
        if policy is not None:
            raw["secure_sum"] = {**raw["secure_sum"], "policy": policy}
        return plans.from_json(raw)


def variants(plan: Plan) -> tuple[Variant, ...]:
    """Return the plan under each protection, in the order of `TITLES`.

    Only "dp" and "secure-sum-dp" add noise, with the plan's own unit, epsilon and clip norm: drawn at each site, and in
    shares. The three others under a secure sum train without any, so that what a mode itself costs stands beside "plain".
    Held-out rows' metrics are public, and scored once at the end unless the plan's result depends on them; nothing limits a
    ledger.
    """
    return tuple(_variant(plan, name) for name in TITLES)


def _variant(plan: Plan, name: str) -> Variant:
    raw: Any = plans.canonical(plan)
    secure = {key: raw["secure_sum"][key] for key in _READS.get(name, ())}
    scored = plan.training.keep == "best" or plan.training.patience is not None
    raw |= {
        "secure_sum": {"mode": _MODES[name], **secure} if name in _MODES else {},
        "evaluation": {"metrics": "public", "every": plan.evaluation.every if scored else total_rounds(plan)},
        "ledger": {},
    }
    noise = _NOISE.get(name)
    if noise is None:
        without = {"clip_norm": None, "noise": True, "noise_scale": 1.0}
        return Variant(name, {**raw, "privacy": {}, "phases": [{**phase, **without} for phase in raw["phases"]]})
    refused = "" if plan.privacy.unit != "none" else "the plan protects nothing: it has no privacy.unit"
    return Variant(name, {**raw, "privacy": {**raw["privacy"], "noise": noise, "against": None}}, refused)
