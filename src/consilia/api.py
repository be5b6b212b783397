"""The public Python functions: what the command line does, in a few lines.

plan = consilia.load("heart.toml", set=["privacy.epsilon=3"])
checked = consilia.check(plan)            # every problem at once, or the numbers that follow from the plan
result = consilia.run(plan)               # result.summary, result.records, result.model, result.folder
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from consilia.core.errors import BudgetExceeded, ConsiliaError, DataError, PlanError, ProtocolError, StoreError
from consilia.dp import accountant
from consilia.dp.calibrate import gaussian_composition, textbook_sigma
from consilia.dp.calibrate import noise_multiplier as smallest_multiplier
from consilia.federation import session
from consilia.federation.conduct import RunResult
from consilia.federation.simulation import prepare
from consilia.plan import load as plans
from consilia.plan.run_plan import RunPlan
from consilia.plan.schema import Plan
from consilia.rounds.coordinator import OnRound

__all__ = [
    "BudgetExceeded", "ConsiliaError", "DataError", "Plan", "PlanError", "ProtocolError", "RunPlan", "RunResult",
    "StoreError", "account", "calibrate", "check", "load", "resume", "run", "write_report",
]  # fmt: skip


def load(path: str | Path, set: Sequence[str] = ()) -> Plan:
    """Read a plan, with overrides such as "privacy.epsilon=3". Relative data paths start at the plan's folder.

    Raises:
        PlanError: With every problem of the file.
    """
    return plans.load(Path(path), set)


def check(plan: Plan) -> RunPlan:
    """Return the numbers that follow from a plan: schedule, noise, epsilon for each adversary, warnings.

    Raises:
        PlanError: With every problem of the plan.
        DataError: With every fault of its data.
    """
    return prepare(plan, Path.cwd()).run_plan


def home() -> Path:
    """Return the folder of the sites' ledgers: CONSILIA_HOME, else .consilia here."""
    return Path(os.environ.get("CONSILIA_HOME", ".consilia"))


def run(
    plan: Plan, out: str | Path | None = None, on_round: OnRound | None = None, engine: str = "process"
) -> RunResult:
    """Train: all sites simulated in this process, each with its own ledger under `home()`.

    Args:
        plan: The plan, from `load`.
        out: The run's folder; runs/<run id> when absent.
        on_round: Called with each round's record once it is durable.
        engine: What trains the sites: "process", this one; "ray", the workers of a Ray cluster (extra consilia[ray]): the
            one that RAY_ADDRESS names, else one on this machine that ends with the run.

    Raises:
        PlanError, DataError, BudgetExceeded, StoreError: Before anything was released.
        TransportError: If the cluster cannot be had, or is lost on the way; `resume` goes on.
    """
    return session.begin(
        plan,
        data_folder=Path.cwd(),
        home=home(),
        out=None if out is None else Path(out),
        on_round=on_round,
        engine=engine,
    )


def resume(folder: str | Path, on_round: OnRound | None = None, engine: str = "process") -> RunResult:
    """Go on from a run's last durable round; of a finished run only the result is read.

    Raises:
        StoreError: If the folder holds no run, or another process runs it.
        PlanError: If the plan, the version, or the numbers of rows no longer give what was agreed. Rows that changed
            otherwise are noted in the site's ledger, which goes on.
        TransportError: As `run`.
    """
    return session.go_on(Path(folder), on_round, engine=engine)


def account(*, sampling_rate: float, noise_multiplier: float, steps: int, delta: float) -> dict[str, Any]:
    """Return an upper bound on epsilon of `steps` Poisson-sampled Gaussian releases (add/remove one record).

    Raises:
        PlanError: With every number that is out of range.
    """
    bound = accountant.bound(gaussian_composition(noise_multiplier, sampling_rate=sampling_rate, steps=steps), delta)
    return {
        "epsilon": bound.epsilon, "accountant": bound.accountant, "delta": delta, "sampling_rate": sampling_rate,
        "noise_multiplier": noise_multiplier, "steps": steps, "adjacency": "add-remove", "rdp": bound.rdp, "pld": bound.pld,
    }  # fmt: skip


def calibrate(*, epsilon: float, delta: float, sampling_rate: float, steps: int) -> dict[str, Any]:
    """Return the smallest noise multiplier whose bound does not exceed `epsilon`.

    `textbook` is what the classical bound for one release would ask for, to compare; None where it is not proved.

    Raises:
        PlanError: With every number that is out of range.
    """
    z = smallest_multiplier(
        epsilon=epsilon, delta=delta, make=lambda s: gaussian_composition(s, sampling_rate=sampling_rate, steps=steps)
    )
    reached = account(sampling_rate=sampling_rate, noise_multiplier=z, steps=steps, delta=delta)
    proved = steps == 1 and sampling_rate == 1 and epsilon <= 1
    textbook = textbook_sigma(epsilon, delta, 1.0) if proved else None
    return {**reached, "target_epsilon": epsilon, "textbook": textbook}


def write_report(folder: str | Path) -> Path:
    """Write the self-contained report of a run and return its place.

    Raises:
        StoreError: If the folder holds no run.
    """
    from consilia.report import page  # noqa: PLC0415  (figures load slowly and only here)

    return page.write_report(Path(folder))
