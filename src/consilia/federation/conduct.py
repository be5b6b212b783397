"""The rounds of a run, from where its journal stands to its end, and what is written down then."""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from consilia.core.canonical import digest_bytes
from consilia.core.errors import PlanError, ProtocolError, StoreError
from consilia.core.update import Vector
from consilia.federation.assemble import Assembled, entropy_of
from consilia.federation.means import Means
from consilia.federation.sums import gatherer_of
from consilia.plan.schema import Plan
from consilia.rounds.coordinator import Coordinator, OnRound, server_optimizer
from consilia.rounds.records import RoundRecord
from consilia.rounds.result import summary
from consilia.rounds.selection import result_model
from consilia.rounds.state import TrainingState
from consilia.rounds.weights import DIGEST, MODEL, to_file
from consilia.store.journal import Journal, Status

RESULT = "result.json"
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


def first_state(assembled: Assembled) -> TrainingState:
    """Return the state that a run begins with."""
    plan = assembled.run_plan
    optimizer = server_optimizer(plan.phases[0].plan)
    state = TrainingState(assembled.initial, moments=optimizer.init(assembled.initial.size))
    if plan.plan.training.scaffold:
        state.control = np.zeros_like(assembled.initial)
    return state


def pin(plan: Plan, dim: int) -> None:
    """Set torch's threads: one for small models, where starting more costs more than they save.

    In the reproducible mode: one thread and deterministic kernels, so that sums come out bit for bit.
    """
    if plan.run.reproducible or dim < SMALL:
        torch.set_num_threads(1)
    if plan.run.reproducible:
        torch.use_deterministic_algorithms(True)


def conduct(
    assembled: Assembled, means: Means, journal: Journal, state: TrainingState, folder: Path, on_round: OnRound | None
) -> RunResult:
    """Run what is left of the rounds, score the result, end the run at every site, and write its folder.

    A run whose rounds fail to count again and again ends as failed, with its last good model.

    Args:
        assembled: The checked plan and its model.
        means: What to work with.
        journal: Where the run stands; in a terminal state afterwards.
        state: The state of its last round; a reason put into its `stopped` meanwhile ends the run after a round.
        folder: Takes the model and the result.
        on_round: Called with each round's record once it is durable.

    Raises:
        StoreError: If something cannot be written; every committed round is safe.
    """
    coordinator = _coordinator(assembled, means, journal, state)
    told = _Told(on_round)
    try:
        coordinator.train(told)
    except (PlanError, ProtocolError) as error:
        if error is told.error:
            raise
        return give_up(assembled, means, journal, state, folder, "failed", str(error))
    model, final = coordinator.evaluate_result()
    status: Status = "stopped" if state.stopped else "done"
    if state.skipped == state.round:
        status, state.stopped = "failed", "no round counted: the model is the one it began with"
    return _end(coordinator, assembled, journal, folder, model, final, status)


class _Told:
    """Calls the caller back, and remembers its own error: that is no reason to end the run, which may be resumed."""

    def __init__(self, on_round: OnRound | None) -> None:
        self._on_round = on_round
        self.error: Exception | None = None

    def __call__(self, record: dict[str, Any]) -> None:
        if self._on_round is None:
            return
        try:
            self._on_round(record)
        except Exception as error:
            self.error = error
            raise


def give_up(
    assembled: Assembled,
    means: Means,
    journal: Journal,
    state: TrainingState,
    folder: Path,
    status: Status,
    reason: str,
) -> RunResult:
    """End a run where it stands, at every site that can still be reached, with the model that it has come to.

    Raises:
        StoreError: If something cannot be written.
    """
    coordinator = _coordinator(assembled, means, journal, state)
    state.stopped = reason
    model = result_model(assembled.run_plan.plan.training.keep, state)
    final = RoundRecord(len(assembled.run_plan.schedule) + 1)
    return _end(coordinator, assembled, journal, folder, model, final, status)


def _coordinator(assembled: Assembled, means: Means, journal: Journal, state: TrainingState) -> Coordinator:
    plan, entropy = assembled.run_plan, entropy_of(assembled.run_plan.plan)
    gatherer = gatherer_of(
        plan, means, run=journal.run, entropy=entropy, records=journal.records, pipelines=assembled.pipelines
    )
    return Coordinator(
        plan, run=journal.run, state=state, pipelines=assembled.pipelines, transport=means.transport,
        journal=journal, entropy=entropy, clock=time.monotonic, gatherer=gatherer,
    )  # fmt: skip


def _end(
    coordinator: Coordinator, assembled: Assembled, journal: Journal, folder: Path, model: Vector, final: RoundRecord,
    status: Status,
) -> RunResult:  # fmt: skip
    state = coordinator.state
    heads = coordinator.close(status)
    result = summary(assembled.run_plan, state, final, run=journal.run, status=status, heads=heads)
    saved = to_file(model, assembled.model.segments)
    result[DIGEST] = digest_bytes(saved)
    # Model before journal: a journal that says "done" never lacks its model.
    write_whole(folder / MODEL, saved)
    write_whole(folder / RESULT, json.dumps(result, indent=2).encode())
    journal.finish(status, state.stopped, result)
    return RunResult(result, journal.records(), model, folder)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is the old one or the new one, never half, whenever the process is killed.

    Raises:
        StoreError: If it cannot be written.
    """
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
