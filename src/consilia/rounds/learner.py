"""A site's rows joined with the work the plan asks for: `ports.Learner` on torch."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from consilia.core.randomness import SecretRng, SharedSeed
from consilia.core.update import Vector
from consilia.data.batches import fixed_batches, poisson_batch
from consilia.data.patients import Patients
from consilia.data.table import Table
from consilia.learning.cohort.task import Task, alone
from consilia.learning.evaluate import evaluate
from consilia.learning.flat import FlatModel
from consilia.learning.local import LocalResult
from consilia.learning.work import LocalWork
from consilia.rounds.ports import LocalState, Score, Trained

Batch = Callable[[], NDArray[np.int64]]

_CONTROL, _BOUND = "scaffold.control", "clipping.bound"


class TorchLearner:
    """Trains a site's rows on a model that simulated sites of one process may share.

    Args:
        model: Built from installed code; its weights are overwritten at each call.
        rows: Training rows.
        held_out: Evaluation rows.
        work: What a round asks for, by its number.
        seed: Public seed of this site: order of fixed batches.
        scaffold: Whether the payload is [model, control variate].
        by_patient: Whether a patient's rows are one unit: drawn, clipped and counted together.
    """

    def __init__(
        self,
        model: FlatModel,
        rows: Table,
        held_out: Table,
        work: Callable[[int], LocalWork],
        *,
        seed: SharedSeed,
        scaffold: bool,
        by_patient: bool = False,
    ) -> None:
        self._model = model
        self._patients = Patients.of(rows) if by_patient else None
        if self._patients is not None:
            rows = rows.take(self._patients.order)
        self._features = torch.from_numpy(rows.features)
        self._labels = torch.from_numpy(rows.labels)
        self._test_features = torch.from_numpy(held_out.features)
        self._test_labels = torch.from_numpy(held_out.labels)
        self._work = work
        self._seed = seed
        self._scaffold = scaffold
        # Without local layers a model has no initial local state to go back to.
        self._initial_local = model.local_state()

    def train(self, payload: Vector, local: LocalState | None, round_number: int, secret: SecretRng) -> Trained:
        """Train from the global model; deterministic given its arguments."""
        task = self.task(payload, local, round_number, secret)
        return self.trained(task, alone(self._model, task))

    def task(self, payload: Vector, local: LocalState | None, round_number: int, secret: SecretRng) -> Task:
        """Return what `train` does as a value, which may be done together with other sites' tasks."""
        dim, work = self._model.dim, self._work(round_number)
        kept = dict(local) if local is not None else {}
        own, bound = kept.pop(_CONTROL, None), kept.pop(_BOUND, None)
        control = None
        if self._scaffold:
            control = (payload[dim:], np.zeros(dim, np.float32) if own is None else np.asarray(own, np.float32))
        return Task(
            payload[:dim], self._features, self._labels, work, secret=secret, control=control,
            public=self._seed.derive("layers", round_number), next_batch=self._batches(work, round_number, secret),
            local={name: kept.get(name, value) for name, value in self._initial_local.items()},
            patients=None if self._patients is None else self._patients.number,
            clip_bound=None if bound is None else float(bound[()]),
        )  # fmt: skip

    def trained(self, task: Task, result: LocalResult) -> Trained:
        """Return a task's result as what the site makes of it."""
        state = dict(result.local_state)
        vector = result.delta
        if task.control is not None and result.control_delta is not None:
            vector = np.concatenate([vector, result.control_delta])
            state[_CONTROL] = task.control[1] + result.control_delta
        if result.clip_bound is not None:
            state[_BOUND] = np.array(result.clip_bound)
        return Trained(vector, state, result.loss)

    def evaluate(self, payload: Vector, local: LocalState | None) -> Score:
        """Score the global model, with the site's own layers where it keeps any."""
        kept = local or {}
        if self._initial_local:
            self._model.load_local({name: kept.get(name, value) for name, value in self._initial_local.items()})
        self._model.set(payload[: self._model.dim])
        correct, loss, rows = evaluate(self._model, self._test_features, self._test_labels)
        return Score(correct, loss, rows)

    def _batches(self, work: LocalWork, round_number: int, secret: SecretRng) -> Batch:
        patients = self._patients
        count = len(self._labels) if patients is None else patients.count
        if work.batch == "poisson":
            rate, cap, sampling = (
                work.sampling_rate or 1.0,
                work.batch_cap or count,
                secret.derive("sampling"),
            )
            draw: Batch = lambda: poisson_batch(count, rate, cap, sampling)  # noqa: E731  (one of two ways to draw)
        else:
            order = self._seed.derive("batches", round_number).generator()
            draw = _endless(count, work.batch_size or count, order).__next__
        return draw if patients is None else lambda: patients.rows(draw())


def _endless(count: int, size: int, generator: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    while True:
        if count == 0:
            yield np.empty(0, np.int64)
        yield from fixed_batches(count, size, generator)
