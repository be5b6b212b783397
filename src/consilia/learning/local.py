"""One round at one site: from the global vector and the site's rows to how far the model moved."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from consilia.core.randomness import SecretRng, SharedSeed
from consilia.core.update import Vector
from consilia.learning.flat import FlatModel
from consilia.learning.gradient import mean_gradient
from consilia.learning.optimizer import start_optimizer
from consilia.learning.private import private_gradient
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
    """

    delta: Vector
    control_delta: Vector | None
    loss: float | None
    local_state: dict[str, NDArray[np.generic]]


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

    Guarantees:
        With work.clip_norm set, `delta` and the new local state are post-processing of work.steps Gaussian
        releases as `private_gradient` states them; nothing else here reads a row. A step is taken for every
        batch, an empty one included.
    """
    model.set(start)
    model.set_mode(training=True)
    terms = start_terms(model, work, control)
    gradient: Callable[[Tensor, Tensor], Tensor | None] = (
        private_gradient(model, work, features.dim(), secret)
        if work.clip_norm is not None
        else lambda x, y: mean_gradient(model, x, y)
    )
    losses: list[Tensor] = []
    step = start_optimizer(model, work) if work.algorithm == "fedavg" else _only_local(model, work)
    with _seeded(public.integer()) if model.stochastic else nullcontext():
        for _ in range(work.steps):
            if work.batch == "full":
                loss = gradient(features, labels)
            else:
                rows = _rows(next_batch(), features.device)
                loss = gradient(features[rows], labels[rows])
            if loss is not None:
                losses.append(loss)
            for term in terms:
                term()
            step()
    delta = model.moved_from(start)
    if work.clip_norm is not None:
        delta[len(model.shared) :] = 0  # a buffer that a layer moved by itself has met neither clip nor noise
    if work.algorithm == "fedsgd":
        delta[: len(model.shared)] = -model.shared_grad.cpu().numpy()
    return LocalResult(
        delta,
        None if control is None else control_change(model, work, control, delta, work.steps),
        float(torch.stack(losses).mean()) if losses else None,
        model.local_state(),
    )


def _only_local(model: FlatModel, work: LocalWork) -> Callable[[], None]:
    # fedsgd: the coordinator steps the shared layers; those kept here have nobody else to move them.
    def step() -> None:
        model.local.add_(model.local_grad, alpha=-work.learning_rate)

    return step


def _rows(index: NDArray[np.int64], device: torch.device) -> Tensor:
    rows = torch.from_numpy(index if index.flags.writeable else index.copy())
    return rows if device.type == "cpu" else rows.to(device)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
