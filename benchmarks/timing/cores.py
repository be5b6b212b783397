"""What a machine gains from all its cores, whoever shares out the work: bare training in one process and in one for each core."""

import multiprocessing
import os
import time
from multiprocessing.synchronize import Barrier

import torch
from torch.nn import functional as F  # noqa: N812  (the name torch documents)

from benchmarks.timing.clock import quartiles
from consilia.core.canonical import Json
from consilia.learning.models import build


def ceiling(turns: int, steps: int) -> Json:
    """Time steps of the CNN in one process, then in one for each core at once, in turns.

    Args:
        turns: How often.
        steps: Of 32 images, in each process.

    Returns:
        How many times faster the same number of steps is done by all cores: at most their number.
    """
    context, cores = multiprocessing.get_context("spawn"), len(os.sched_getaffinity(0))
    lone: list[float] = []
    joint: list[float] = []
    for _ in range(turns):
        for processes, taken in ((1, lone), (cores, joint)):
            barrier, answers = context.Barrier(processes), context.SimpleQueue()
            started = [context.Process(target=_train, args=(steps, barrier, answers)) for _ in range(processes)]
            for process in started:
                process.start()
            taken.append(max(answers.get() for _ in started))
            for process in started:
                process.join()
    return {"cores": cores, "turns": turns, **quartiles([cores * a / b for a, b in zip(lone, joint, strict=True)])}


def _train(steps: int, barrier: Barrier, answers: "multiprocessing.SimpleQueue[float]") -> None:
    torch.set_num_threads(1)
    model = build("mnist-cnn", input_shape=(1, 28, 28), classes=10, seed=1)
    images, labels = torch.randn(32, 1, 28, 28), torch.randint(0, 10, (32,))
    for number in range(steps + 5):
        if number == 5:  # what is only paid once, is paid
            barrier.wait()
            begun = time.perf_counter()
        F.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
    answers.put(time.perf_counter() - begun)
