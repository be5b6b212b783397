"""One round at one site: from the global vector and the site's rows to how far the model moved."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from consilia.core.randomness import SecretRng, SharedSeed
from consilia.core.update import Vector
from consilia.learning.augment import views
from consilia.learning.flat import FlatModel
from consilia.learning.gradient import mean_gradient
from consilia.learning.optimizer import start_optimizer
from consilia.learning.persample.units import Units
from consilia.learning.private import private_gradient
from consilia.learning.seeded import seeded
from consilia.learning.terms import Control, control_change, start_terms
from consilia.learning.work import LocalWork

NextBatch = Callable[[], NDArray[np.int64]]


@dataclass(frozen=True)
class LocalResult:
    """What a round's work gave. All of it stays at the site until the pipeline makes a release of it.

    Attributes:
        delta: fedavg: y - x; fedsgd: minus the gradient (running statistics: y - x). Shape (d,), float32.
        control_delta: SCAFFOLD: c_i+ - c_i, shape (d,), float32; c_i+ counts once the coordinator counted the
            round.
        loss: Mean training loss over the steps; None under record-level privacy and where no batch had a row.
        local_state: What stays at the site, as `FlatModel.local_state` returns it.
        clip_bound: Adaptive clipping: C for the site's next round; made of noised counts only.
    """

    delta: Vector
    control_delta: Vector | None
    loss: float | None
    local_state: dict[str, NDArray[np.generic]]
    clip_bound: float | None = None


def train(
    model: FlatModel,
    start: Vector,
    features: Tensor,
    labels: Tensor,
    work: LocalWork,
    *,
    secret: SecretRng,
    public: SharedSeed,
    next_batch: NextBatch,
    control: Control | None = None,
    patients: NDArray[np.int64] | None = None,
    clip_bound: float | None = None,
) -> LocalResult:
    """Do one round's work.

    Args:
        model: The site's model; its local layers carry over from earlier rounds (`load_local`).
        start: The global vector x, shape (d,).
        features: The site's training rows, shape (n, *input), of the model's type and device.
        labels: Their classes, shape (n,), int64.
        work: What to compute.
        secret: Noise of record-level privacy.
        public: Seeds layers that draw at random (dropout), which clipping per example rules out; never noise.
        next_batch: Gives the rows of a step, shape (b,), b may be 0; not asked when work.batch is "full".
        control: SCAFFOLD: the coordinator's c and this site's c_i, each of shape (d,).
        patients: Numbers of the patients of all rows, shape (n,), where they are the unit; rows of one patient are
            neighbours, in the features and in every batch.
        clip_bound: Adaptive clipping: C as the site's last round left it; None: work.clip_norm.

    Guarantees:
        With work.clip_norm set, `delta` and the new local state are post-processing of work.steps Gaussian
        releases as `private_gradient` states them; nothing else here reads a row. A step is taken for every
        batch, an empty one included.
    """
    if model.trains != work.trained:
        model.train_only(work.trained)
    model.set(start)
    model.set_mode(training=True)
    terms = start_terms(model, work, control)
    private = None
    if work.clip_norm is not None:
        private = private_gradient(model, work, features.dim(), secret, bound=clip_bound)
    losses: list[Tensor] = []
    step = _only_local(model, work)
    if work.algorithm == "fedavg":
        step = start_optimizer(model, work, None if private is None else lambda: private.deviation)
    names = None if patients is None else torch.from_numpy(patients).to(features.device)
    with seeded(public.integer()) if model.stochastic else nullcontext():
        for _ in range(work.steps):
            rows = slice(None) if work.batch == "full" else _rows(next_batch(), features.device)
            loss = None
            if private is not None:
                private(features[rows], labels[rows], None if names is None else Units.contiguous(names[rows]))
            else:
                loss = mean_gradient(model, *_seen(features[rows], labels[rows], work, secret))
            if loss is not None:
                losses.append(loss)
            for term in terms:
                term()
            step()
    delta = model.moved_from(start)
    if work.clip_norm is not None:
        # What is frozen did not move, and a buffer that a layer moved by itself has met neither clip nor noise.
        delta[: model.span.start] = delta[model.span.stop :] = 0
    if work.algorithm == "fedsgd":
        delta[model.span] = -model.shared_grad.cpu().numpy()
    return LocalResult(
        delta,
        None if control is None else control_change(model, work, control, delta, work.steps),
        float(torch.stack(losses).mean()) if losses else None,
        model.local_state(),
        private.bound if private is not None and work.clipping == "adaptive" else None,
    )


def _only_local(model: FlatModel, work: LocalWork) -> Callable[[], None]:
    # fedsgd: the coordinator steps the shared layers; those kept here have nobody else to move them.
    def step() -> None:
        model.local.add_(model.local_grad, alpha=-work.learning_rate)

    return step


def _seen(features: Tensor, labels: Tensor, work: LocalWork, secret: SecretRng) -> tuple[Tensor, Tensor]:
    # Without privacy a view is a row: their mean gradient is that of the records' means.
    if work.augment == "none":
        return features, labels
    return views(features, work.views, work.augment, secret), labels.repeat_interleave(work.views)


def _rows(index: NDArray[np.int64], device: torch.device) -> Tensor:
    rows = torch.from_numpy(index if index.flags.writeable else index.copy())
    return rows if device.type == "cpu" else rows.to(device)
