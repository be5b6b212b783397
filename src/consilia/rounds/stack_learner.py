"""A site that answers once: `ports.Learner` with a stack of private models."""

import numpy as np
import torch

from consilia.core.randomness import SecretRng
from consilia.core.update import Vector
from consilia.data.table import Table
from consilia.learning.evaluate import evaluate
from consilia.learning.flat import FlatModel
from consilia.learning.stacking.train import train_stack
from consilia.learning.stacking.work import StackWork
from consilia.rounds.ports import LocalState, Score, Trained


class StackLearner:
    """Trains a private stack on a site's rows; the second class is the positive one.

    Args:
        model: The stack as a torch model, for scores; simulated sites may share it.
        rows: Training rows.
        held_out: Evaluation rows.
        work: What is trained; public.
    """

    def __init__(self, model: FlatModel, rows: Table, held_out: Table, work: StackWork) -> None:
        self._model = model
        self._features = rows.features.reshape(len(rows), -1)
        self._positive = rows.labels == 1
        self._test_features = torch.from_numpy(held_out.features)
        self._test_labels = torch.from_numpy(held_out.labels)
        self._work = work

    def train(self, payload: Vector, local: LocalState | None, round_number: int, secret: SecretRng) -> Trained:
        """Return the private stack less the model received, which is the source of a transfer once it holds anything."""
        received = payload.astype(np.float64)
        source = received if self._work.pull and received.any() else None
        stack = train_stack(self._work, self._features, self._positive, secret, source)
        return Trained((stack - received).astype(np.float32), {}, None)

    def evaluate(self, payload: Vector, local: LocalState | None) -> Score:
        """Score a stack on the held-out rows."""
        self._model.set(payload)
        correct, loss, rows = evaluate(self._model, self._test_features, self._test_labels)
        return Score(correct, loss, rows)
