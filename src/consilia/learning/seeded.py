"""Torch's global generator, for code that can draw from nothing else."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_ONE = threading.RLock()  # the generator is the process's: another thread's seed would change the weights drawn here


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let what is drawn within follow from a public seed; the generator is left as it was. One thread at a time."""
    with _ONE, torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
