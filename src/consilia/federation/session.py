"""A run in a folder: begun, resumed after a kill, and brought to its end."""

import json
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from consilia.core.canonical import digest_bytes
from consilia.core.errors import PlanError, StoreError
from consilia.core.update import Vector
from consilia.core.version import VERSION
from consilia.crypto.attestation.attester import Attester
from consilia.federation.assemble import entropy_of
from consilia.federation.attesting import attester_of
from consilia.federation.simulation import Prepared, Simulation, prepare
from consilia.federation.sums import gatherer_of
from consilia.plan import load as plans
from consilia.plan.facts import facts
from consilia.plan.run_plan import RunPlan
from consilia.plan.schema import Plan
from consilia.rounds.coordinator import Coordinator, OnRound, server_optimizer
from consilia.rounds.result import summary
from consilia.rounds.state import TrainingState, from_bytes, to_bytes
from consilia.rounds.weights import DIGEST, MODEL, result_vector, to_file
from consilia.store.journal import Journal, Status

JOURNAL, RESULT = "journal.sqlite", "result.json"
SMALL = 100_000  # parameters


@dataclass(frozen=True)
class RunResult:
    """A finished run.

    Attributes:
        summary: The JSON document that `consilia run --json` prints.
        records: One mapping a round.
        model: The resulting vector, shape (d,).
        folder: Where journal, model and result lie.
    """

    summary: dict[str, Any]
    records: list[dict[str, Any]]
    model: Vector
    folder: Path


def begin(plan: Plan, *, data_folder: Path, home: Path, out: Path | None, on_round: OnRound | None) -> RunResult:
    """Start a run in a fresh folder and train to its end.

    Raises:
        PlanError, DataError, BudgetExceeded, StoreError: Before anything was released.
    """
    run = f"{plan.run.name.replace(' ', '-')}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
    folder = out if out is not None else Path("runs") / run
    return start(prepare(plan, data_folder), run, data_folder=data_folder, home=home, folder=folder, on_round=on_round)


def start(
    prepared: Prepared, run: str, *, data_folder: Path, home: Path, folder: Path, on_round: OnRound | None
) -> RunResult:
    """Start a run that was checked, under a name of its own.

    Raises:
        PlanError, BudgetExceeded, StoreError: Before anything was released.
    """
    plan = prepared.run_plan.plan
    pin(plan, prepared.model.dim)
    optimizer = server_optimizer(prepared.run_plan.phases[0].plan)
    state = TrainingState(prepared.initial, moments=optimizer.init(prepared.initial.size))
    if plan.training.scaffold:
        state.control = np.zeros_like(prepared.initial)
    if (folder / JOURNAL).exists():
        raise StoreError.of(f"run folder {folder}", needs="a folder without a run", got="one that holds a run",
                            hint=f"Go on with it (consilia run --resume {folder}), or name another --out")  # fmt: skip
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError.of(f"run folder {folder}", needs="a folder it may write", got=type(error).__name__,
                            hint="Name another with --out") from None  # fmt: skip
    # Every ledger is asked first, then the journal begins, then the ledgers admit the run: one that is refused leaves no
    # folder that looks like a run, and one that cannot begin spends nothing.
    with attester_of(prepared.policy) as attester, Simulation(prepared, run=run, home=home) as simulation:
        agreed = json.dumps(
            {
                "plan": plans.canonical(plan),
                "facts": facts(prepared.run_plan),
                "data_folder": str(data_folder.resolve()),
                "home": str(home.resolve()),
                "within": prepared.run_plan.within,
                "coordinator": simulation.consortium.signing.public.hex() if simulation.consortium else None,
            }
        )
        with Journal.create(
            folder / JOURNAL, run=run, plan_json=agreed, digest=prepared.run_plan.digest, state=to_bytes(state)
        ) as journal:
            simulation.admit()
            return _train(prepared, simulation, attester, journal, state, folder, on_round)


def go_on(folder: Path, on_round: OnRound | None, claim: Callable[[RunPlan], RunPlan] | None = None) -> RunResult:
    """Resume a run from its last durable round; of a finished run only the result is read.

    Args:
        folder: The run's.
        on_round: Called with each round's record once it is durable.
        claim: For a trial: what puts its search's bounds in place of its own.

    Raises:
        StoreError: If the folder holds no run, or another process runs it.
        PlanError: If the plan, the version, or the numbers of rows no longer give what was agreed. Rows that changed
            otherwise are noted in the site's ledger, which goes on.
    """
    if not (folder / JOURNAL).is_file():
        raise StoreError.of(
            f"run folder {folder}",
            needs=f"a run ({JOURNAL})",
            got="none",
            hint="Name the folder that `consilia run` printed",
        )
    with Journal.open(folder / JOURNAL) as journal:
        agreed = json.loads(journal.plan_json)
        plan = plans.from_json(agreed["plan"])
        if journal.result is not None:
            return RunResult(journal.result, journal.records(), result_vector(folder, journal.result), folder)
        if agreed.get("within") is not None and claim is None:
            raise StoreError.of(f"run folder {folder}", needs="a run of its own", got=f"a trial of search {agreed['within']!r}",
                                hint="Only its search can go on with it: consilia tune --resume")  # fmt: skip
        prepared = prepare(plan, Path(agreed["data_folder"]))
        if claim is not None:
            prepared = replace(prepared, run_plan=claim(prepared.run_plan))
        if prepared.run_plan.digest != journal.digest:
            began = f"{journal.digest[:12]}, Consilia {agreed['facts']['version']}"
            raise PlanError.of("the run", needs=f"the plan, data and version it began with ({began})",
                               got=f"{prepared.run_plan.digest[:12]}, Consilia {VERSION}",
                               hint="Restore them, or start a new run")  # fmt: skip
        pin(plan, prepared.model.dim)
        with (
            attester_of(prepared.policy) as attester,
            Simulation(prepared, run=journal.run, home=Path(agreed["home"])) as simulation,
        ):
            if simulation.consortium is not None:
                simulation.consortium.require(agreed.get("coordinator"))
            simulation.compare(journal.heads())
            simulation.admit()
            return _train(prepared, simulation, attester, journal, from_bytes(journal.state), folder, on_round)


def pin(plan: Plan, dim: int) -> None:
    """Set torch's threads: one for small models, where starting more costs more than they save.

    In the reproducible mode: one thread and deterministic kernels, so that sums come out bit for bit.
    """
    if plan.run.reproducible or dim < SMALL:
        torch.set_num_threads(1)
    if plan.run.reproducible:
        torch.use_deterministic_algorithms(True)


def _train(
    prepared: Prepared,
    simulation: Simulation,
    attester: Attester | None,
    journal: Journal,
    state: TrainingState,
    folder: Path,
    on_round: OnRound | None,
) -> RunResult:
    plan = prepared.run_plan
    entropy = entropy_of(plan.plan)
    gatherer = gatherer_of(
        plan, simulation.consortium, run=journal.run, transport=simulation.transport, entropy=entropy,
        records=journal.records(), pipelines=prepared.pipelines, policy=prepared.policy, attester=attester,
    )  # fmt: skip
    coordinator = Coordinator(
        plan, run=journal.run, state=state, pipelines=prepared.pipelines, transport=simulation.transport,
        journal=journal, entropy=entropy, clock=time.monotonic, gatherer=gatherer,
    )  # fmt: skip
    coordinator.train(on_round)
    model, final = coordinator.evaluate_result()
    status: Status = "stopped" if state.stopped else "done"
    if state.skipped == state.round:
        status, state.stopped = "failed", "no round counted: the model is the one it began with"
    heads = coordinator.close(status)
    result = summary(plan, state, final, run=journal.run, status=status, heads=heads)
    saved = to_file(model, prepared.model.segments)
    result[DIGEST] = digest_bytes(saved)
    # Model before journal: a journal that says "done" never lacks its model.
    _write(folder / MODEL, saved)
    _write(folder / RESULT, json.dumps(result, indent=2).encode())
    journal.finish(status, state.stopped, result)
    return RunResult(result, journal.records(), model, folder)


def _write(path: Path, data: bytes) -> None:
    # Written aside, flushed, then renamed: a kill leaves the old file or the new one, never half.
    aside = path.with_suffix(path.suffix + ".part")
    try:
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError as error:
        raise StoreError.of(f"file {path}", needs="room and permission to be written", got=error.strerror or "an error",
                            hint="Make room or change the permissions, then resume; every round is safe") from None  # fmt: skip
