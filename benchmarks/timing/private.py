"""A private step over a plain one, in the product's own local training; for information, nothing is promised."""

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from benchmarks.timing.clock import digits, quartiles
from benchmarks.timing.cnn import two_convolutions
from consilia.core.canonical import Json
from consilia.core.randomness import SecretRng, SharedSeed
from consilia.learning.flat import FlatModel
from consilia.learning.local import train
from consilia.learning.models import build
from consilia.learning.work import LocalWork

MODELS: dict[str, tuple[tuple[int, ...], int, tuple[int, ...], int]] = {
    # name of the model: shape of a row, classes, hidden layers, rows a batch
    "logistic": ((16,), 2, (), 64),
    "mlp": ((22,), 2, (64,), 64),
    "mnist-cnn": ((1, 28, 28), 10, (), 32),
    "two convolutions, 1.6 M": ((3, 32, 32), 10, (), 10),
}


def private_steps(pairs: int, names: tuple[str, ...] = tuple(MODELS)) -> dict[str, Json]:
    """Time blocks of private and of plain steps in turn, and return their ratios by model.

    Args:
        pairs: Blocks of each kind.
        names: Which models.
    """
    return {name: _compare(name, pairs) for name in names}


def _compare(name: str, pairs: int) -> dict[str, Json]:
    shape, classes, hidden, batch = MODELS[name]
    module = (
        two_convolutions(input_shape=shape, classes=classes)
        if name.startswith("two")
        else build(name, input_shape=shape, classes=classes, hidden=hidden, seed=1)
    )
    model = FlatModel(module)
    rng = np.random.default_rng(5)
    features = torch.from_numpy(rng.standard_normal((256, *shape), dtype=np.float32))
    labels = torch.from_numpy(rng.integers(0, classes, 256))
    steps = 2 if model.dim > 1_000_000 else 20
    plain = LocalWork(batch="fixed", batch_size=batch, steps=steps, learning_rate=0.01)
    private = LocalWork(
        batch="fixed", batch_size=batch, steps=steps, learning_rate=0.01, clip_norm=1.0, noise_multiplier=1.0,
        expected_batch=batch,
    )  # fmt: skip
    secret, start = SecretRng(bytes(32)), model.get()
    rows = rng.permutation(256)[:batch]
    run: Callable[[LocalWork], object] = partial(
        train, model, start, features, labels, secret=secret, public=SharedSeed.of(0), next_batch=lambda: rows
    )
    taken: dict[str, list[float]] = {"plain": [], "private": []}
    for work in (plain, private):
        run(work)  # what is made once
    for _ in range(pairs):
        for kind, work in (("plain", plain), ("private", private)):
            started = time.process_time()
            run(work)
            taken[kind].append(1e3 * (time.process_time() - started) / steps)
    ratios = [above / below for above, below in zip(taken["private"], taken["plain"], strict=True)]
    noise = _noise_ms(model.dim, pairs)
    return {
        "parameters": model.dim, "batch": batch, "pairs": pairs, "ratio_cpu": quartiles(ratios),
        "plain_step_ms": quartiles(taken["plain"]), "private_step_ms": quartiles(taken["private"]),
        "of_which_drawing_noise_ms": digits(noise),
    }  # fmt: skip


def _noise_ms(dim: int, pairs: int) -> float:
    secret = SecretRng(bytes(32))
    times = []
    for _ in range(pairs):
        started = time.process_time()
        secret.normal(dim)
        times.append(1e3 * (time.process_time() - started))
    return float(np.median(times))
