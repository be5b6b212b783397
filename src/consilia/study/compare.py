"""One plan run under each protection: what each costs, what it keeps from the server, what it leaves of accuracy."""

import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from consilia.core.errors import ConsiliaError, PlanError, ProtocolError, TransportError
from consilia.core.randomness import SharedSeed
from consilia.federation import session
from consilia.federation.attesting import DEVICE
from consilia.federation.simulation import prepare
from consilia.plan.facts import facts
from consilia.plan.schema import Plan
from consilia.report.comparison import sees
from consilia.study import software_tpm
from consilia.study.folder import fresh
from consilia.study.variants import TITLES, Variant, variants

RUNS = "runs"
PUBLISHED = ("heart", "adult")  # sources whose rows anyone can fetch


@dataclass(frozen=True)
class Measured:
    """One run.

    Attributes:
        accuracy: Of the resulting model on held-out rows; None where no score came.
        wall: Seconds of a round, the median.
        cpu: Seconds of this process's processors in it.
        up: Bytes that a site sends in a round.
        down: Bytes that it is sent.
        setup: Processor seconds before the second round beyond those of a later one: keys, evidence, ledgers.
        setup_bytes: Bytes of the first round beyond those of a later one, all sites, both ways.
        facts: What does not depend on the seed: epsilon, against whom, what the server sees.
    """

    accuracy: float | None
    wall: float
    cpu: float
    up: float
    down: float
    setup: float
    setup_bytes: float
    facts: Mapping[str, Any]


@dataclass
class _Row:
    variant: Variant
    runs: list[Measured] = field(default_factory=list)
    reason: str = ""


OnRun = Callable[[str, int], None]


def compare(
    plan: Plan, *, seeds: int, public_rows: bool, data_folder: Path, out: Path | None, on_run: OnRun
) -> tuple[Path, dict[str, Any]]:
    """Run a plan under each protection and return the folder with every run, and the comparison as plain values.

    All runs of one seed have the same rows, split and first model; they follow each other in an order drawn for each
    seed, so that a machine that slows down favours none.

    Args:
        plan: The plan.
        seeds: Runs of each row: run.seed 1, 2, ...
        public_rows: The caller declares that the rows are public or synthetic.
        data_folder: Where relative paths start.
        out: The comparison's folder, fresh.
        on_run: Told each row and seed before it runs.

    Raises:
        PlanError: If the rows may have somebody to protect, or no row can run.
        DataError, StoreError: If data cannot be read, or the folder not be written.

    Guarantees:
        None: most rows add no noise, and nobody is charged, so it runs on public or synthetic rows only. The ledgers that
        its runs write lie in its own folder; the sites' own are neither read nor written.
    """
    require_public(plan, public_rows)
    named = out if out is not None else Path("comparisons") / f"{plan.run.name.replace(' ', '-')}-{_stamp()}"
    folder = fresh(named, RUNS, what="comparison folder")
    rows = [_Row(variant, reason=variant.refused) for variant in variants(plan)]
    for seed in range(1, seeds + 1):
        order = SharedSeed.of(plan.run.seed).derive("compare", seed).generator().permutation(len(rows))
        for row in (rows[index] for index in order):
            if row.reason:
                continue
            on_run(TITLES[row.variant.name], seed)
            try:
                row.runs.append(_run(row.variant, plan, seed, folder, data_folder))
            except (PlanError, ProtocolError, TransportError) as error:
                row.reason = _reason(error)
    if not any(row.runs for row in rows):
        raise PlanError.of("the comparison", needs="a protection that the plan can hold", got=f"none; {rows[0].reason}",
                           hint="See that the plan runs by itself: consilia check PLAN")  # fmt: skip
    return folder, {"seeds": list(range(1, seeds + 1)), "plan": plan.run.name, "rows": [_summary(row) for row in rows]}


def require_public(plan: Plan, declared: bool) -> None:
    """Refuse rows that may have somebody to protect.

    Raises:
        PlanError: Unless the source is a published table, or its rows are declared public.
    """
    if plan.data.source not in PUBLISHED and not declared:
        raise PlanError.of(
            "consilia study compare", needs="rows that nobody has to protect: most of its runs add no noise, and none is charged",
            got=f'data.source = "{plan.data.source}"',
            hint='Try the plan on a published table (--set data.source=adult), or declare with --public-rows that these rows '
            "are public or synthetic",
        )  # fmt: skip


def _run(variant: Variant, plan: Plan, seed: int, folder: Path, data_folder: Path) -> Measured:
    place = folder / RUNS / f"{variant.name}-{seed}"
    try:
        with _policy(variant, plan) as (policy, limit):
            return _measured(variant.plan(seed, policy), place, data_folder, limit)
    except ConsiliaError:
        shutil.rmtree(place, ignore_errors=True)
        raise


@contextmanager
def _policy(variant: Variant, plan: Plan) -> Iterator[tuple[str | None, str]]:
    """Yield the policy of attested sums, and what limits them here.

    It is the plan's own where the hardware is here, else a software TPM's.
    """
    if variant.name != "attested":
        yield None, ""
    elif plan.secure_sum.policy is not None and os.environ.get(DEVICE):
        yield plan.secure_sum.policy, ""
    elif software_tpm.available():
        with software_tpm.software_tpm() as policy:
            yield str(policy), f"; {software_tpm.LIMIT}"
    else:
        raise TransportError.of("attested sums", needs="a TPM", got="none",
                                hint=f"Install {software_tpm.PROGRAM}, or set {DEVICE} and secure_sum.policy")  # fmt: skip


def _measured(plan: Plan, place: Path, data_folder: Path, limit: str) -> Measured:
    prepared = prepare(plan, data_folder)
    marks = [(time.perf_counter(), time.process_time())]
    result = session.start(
        prepared, f"{place.name}-{secrets.token_hex(3)}", data_folder=data_folder, home=place / "home", folder=place / "run",
        on_round=lambda _record: marks.append((time.perf_counter(), time.process_time())),
    )  # fmt: skip
    if result.summary["status"] == "failed":
        raise ProtocolError.of("its run", needs="rounds that count", got=result.summary["reason"], hint="")
    rounds = [
        (record, after[0] - before[0], after[1] - before[1])
        for record, before, after in zip(result.records, marks, marks[1:], strict=False)
    ]
    first, later = rounds[0], [part for part in rounds[1:] if part[0]["accuracy"] is None] or rounds[1:] or rounds
    moved = [(part[0]["bytes_up"], part[0]["bytes_down"], len(part[0]["asked"])) for part in later]
    cpu = median(part[2] for part in later)
    up, down = (median(part[way] / max(part[2], 1) for part in moved) for way in (0, 1))
    both = median(a + b for a, b, _ in moved)
    summary, told = result.summary, facts(prepared.run_plan)
    private = summary["epsilon"] is not None
    return Measured(
        summary["accuracy"], median(part[1] for part in later), cpu, up, down, max(0.0, first[2] - cpu),
        max(0.0, first[0]["bytes_up"] + first[0]["bytes_down"] - both),
        {key: summary[key] for key in ("epsilon", "epsilon_against", "delta", "noise_multiplier", "rounds", "skipped")}
        | {"against": summary["against"] if private else None, "sites": len(told["sites"]), "sees": sees(told) + limit},
    )  # fmt: skip


def _summary(row: _Row) -> dict[str, Any]:
    runs, name = row.runs, row.variant.name
    found: dict[str, Any] = {"name": name, "title": TITLES[name], "reason": row.reason or None}
    if not runs:
        return found
    scores = [run.accuracy for run in runs if run.accuracy is not None]
    return found | dict(runs[0].facts) | {
        "accuracy": fmean(scores) if scores else None, "spread": stdev(scores) if len(scores) > 1 else None,
        "accuracies": [run.accuracy for run in runs],
        **{key: median(getattr(run, key) for run in runs) for key in ("wall", "cpu", "up", "down", "setup", "setup_bytes")},
    }  # fmt: skip


def _reason(error: ConsiliaError) -> str:
    first = error.problems[0]
    return f"{first.who} needs {first.needs}; got {first.got}" + (f". {first.hint}" if first.hint else "")


def _stamp() -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
