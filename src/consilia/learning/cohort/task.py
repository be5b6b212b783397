"""One site's work in a round as a value, and which work can be done together."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from consilia.core.randomness import SecretRng, SharedSeed
from consilia.core.update import Vector
from consilia.learning.flat import FlatModel
from consilia.learning.local import LocalResult, NextBatch, train
from consilia.learning.persample.chain import leaves
from consilia.learning.persample.linear import LinearChain
from consilia.learning.terms import Control
from consilia.learning.work import LocalWork


@dataclass(frozen=True)
class Task:
    """What `learning.local.train` is called with for one site.

    Attributes:
        start: The global vector, shape (d,).
        features: The site's training rows, shape (n, *input).
        labels: Their classes, shape (n,).
        work: What to compute.
        secret: Noise of record-level privacy.
        public: Seeds layers that draw at random.
        next_batch: Gives the rows of a step.
        control: SCAFFOLD: c and c_i.
        local: State of the layers that stay at the site; empty where none do.
        patients: Numbers of the patients of all rows, where they are the unit.
        clip_bound: Adaptive clipping: C as the last round left it.
    """

    start: Vector
    features: Tensor
    labels: Tensor
    work: LocalWork
    secret: SecretRng
    public: SharedSeed
    next_batch: NextBatch
    control: Control | None
    local: Mapping[str, NDArray[np.generic]]
    patients: NDArray[np.int64] | None = None
    clip_bound: float | None = None


def alone(model: FlatModel, task: Task) -> LocalResult:
    """Do one site's work by itself, on a model that sites may share in turn."""
    if task.local:
        model.load_local(dict(task.local))
    return train(
        model, task.start, task.features, task.labels, task.work, secret=task.secret, public=task.public,
        next_batch=task.next_batch, control=task.control, patients=task.patients, clip_bound=task.clip_bound,
    )  # fmt: skip


def fits(model: FlatModel, work: LocalWork, rank: int) -> bool:
    """Return True if work of this kind can be done together: a chain of Linear layers that all travel, and sgd or adam.

    Args:
        model: The model.
        work: What to compute. A number that this module does not know must stand at its default.
        rank: Number of dimensions of a batch of features.
    """
    flatten = (layer for layer in leaves(model.module) if isinstance(layer, nn.Flatten))
    return (
        known(work)
        and model.dim == len(model.trainable)
        and LinearChain.of(model, rank) is not None
        and all((layer.start_dim, layer.end_dim) == (1, -1) for layer in flatten)
    )


@lru_cache(maxsize=4096)
def known(work: LocalWork) -> bool:
    """Return True if nothing is asked that the stacked steps would leave out."""
    mine = {field.name: getattr(work, field.name) for field in fields(work) if field.name in _KNOWN}
    return work == LocalWork(**mine) and work.optimizer in ("sgd", "adam")


_KNOWN = {
    "algorithm", "batch", "batch_size", "sampling_rate", "batch_cap", "expected_batch", "steps", "optimizer",
    "learning_rate", "momentum", "weight_decay", "proximal_mu", "clip_norm", "noise_multiplier",
}  # fmt: skip
