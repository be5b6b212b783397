"""Sites in lock step: one step of all of them is a few operations on stacked parameters."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from consilia.core.randomness import normals
from consilia.learning.cohort.linear import StackedChain
from consilia.learning.cohort.rows import Batch, Index, Rows
from consilia.learning.cohort.stack import Stack
from consilia.learning.cohort.task import Task
from consilia.learning.flat import FlatModel
from consilia.learning.local import LocalResult
from consilia.learning.optimizer import start_optimizer
from consilia.learning.terms import Control, control_change, pulls

_NONE: Index = np.empty(0, np.int64)

Result = LocalResult | Exception


def in_lock_step(model: FlatModel, tasks: Sequence[Task], width: int) -> list[Result]:
    """Do the work of sites that differ only in rows, number of steps, batches and streams.

    Args:
        model: Their model; read for its layers only.
        tasks: Ordered by number of steps, most first, so that those still at work are always the first ones.
        width: Elements of one row's features.

    Returns:
        Each site's result, or what its own batches or noise raised.
    """
    work, steps = tasks[0].work, [task.work.steps for task in tasks]
    starts = np.stack([task.start for task in tasks])
    stack = Stack(model, starts)
    draws = _Draws(tasks, width)
    gradients = _gradients(StackedChain(model, stack), stack, tasks, draws)
    terms = pulls(stack, work)
    if work.optimizer == "sgd" and all(task.control is not None for task in tasks):
        terms.append(_scaffold(stack, [task.control for task in tasks if task.control is not None]))
    step = start_optimizer(stack, work)
    results: list[Tensor] = []
    losses: list[tuple[Tensor, Index]] = []
    for number in range(steps[0]):
        active, staying = (sum(k > at for k in steps) for at in (number, number + 1))
        batch = draws.batch(active)
        found = gradients(batch)
        if found is not None:
            losses.append((found, batch.counts))
        for term in terms:
            term()
        if work.algorithm == "fedavg":
            step()
        if staying < active:  # those that are done go on with stale gradients; what they reached is taken now
            take = stack.vectors if work.algorithm == "fedavg" else stack.gradient_vectors
            results.insert(0, take(staying, active))
    reached = torch.cat(results).cpu().numpy()
    deltas = (
        np.subtract(reached, starts, dtype=np.float32) if work.algorithm == "fedavg" else -reached.astype(np.float32)
    )
    means = _means(losses, len(tasks))
    outcomes: list[Result] = []
    for site, task in enumerate(tasks):
        delta = deltas[site].copy()  # a view would keep the whole chunk alive
        change = None if task.control is None else control_change(model, task.work, task.control, delta, steps[site])
        outcomes.append(draws.failed.get(site) or LocalResult(delta, change, means[site], {}))
    return outcomes


class _Draws:
    """What each site draws for itself, from its own streams; a site whose draw fails goes on with nothing."""

    def __init__(self, tasks: Sequence[Task], width: int) -> None:
        self.failed: dict[int, Exception] = {}
        self._tasks = tasks
        self._rows = Rows(tasks, width)
        self._full = self._rows.full() if tasks[0].work.batch == "full" else None

    def batch(self, active: int) -> Batch:
        """Return the next batch of the first sites."""
        if self._full is not None:
            return self._full if active == len(self._tasks) else self._full.prefix(active)
        batch, foreign = self._rows.batch([self._draw(site) for site in range(active)])
        for site in foreign:
            self.failed[site] = IndexError("a batch names a row that the site does not have")
        return batch

    def noise(self, active: int, size: int) -> Tensor:
        """Return standard normals in double precision, shape (active, size)."""
        return torch.from_numpy(normals([task.secret for task in self._tasks[:active]], size))

    def _draw(self, site: int) -> Index:
        if site in self.failed:
            return _NONE
        try:
            return self._tasks[site].next_batch()
        except Exception as error:  # costs this site its turn
            self.failed[site] = error
            return _NONE


def _gradients(
    chain: StackedChain, stack: Stack, tasks: Sequence[Task], draws: _Draws
) -> Callable[[Batch], Tensor | None]:
    """Return what writes a step's gradients: means, as `learning.gradient`, or noisy ones, as `learning.private`."""
    clip_norm, multiplier = tasks[0].work.clip_norm, tasks[0].work.noise_multiplier
    if clip_norm is None:
        return chain.mean_gradients
    expected = torch.tensor([[task.work.expected_batch] for task in tasks], dtype=torch.float64)
    deviation = multiplier * clip_norm

    def noisy(batch: Batch) -> None:
        active = len(batch.counts)
        chain.clipped_sums(batch, clip_norm)
        total = stack.gradient_vectors(0, active).cpu()
        if deviation > 0:  # in double precision, where the smallest bits of the sum meet those of the noise
            total = draws.noise(active, total.shape[1]).mul_(deviation).add_(total)
        stack.set_gradients(total.div_(expected[:active]))

    return noisy


def _scaffold(stack: Stack, controls: Sequence[Control]) -> Callable[[], None]:
    """SCAFFOLD's correction of every site's gradient, as `learning.terms` adds it to one."""
    correction = stack.laid_out(torch.from_numpy(np.stack([c - c_i for c, c_i in controls])))

    def term() -> None:
        stack.grad.add_(correction)

    return term


def _means(losses: Sequence[tuple[Tensor, Index]], sites: int) -> list[float | None]:
    """Return each site's mean loss over its steps that had a row; None where no step had."""
    total, seen = np.zeros(sites), np.zeros(sites, np.int64)
    for loss, counts in losses:
        had = counts > 0
        total[: len(counts)] += np.where(had, loss.cpu().numpy(), 0.0)
        seen[: len(counts)] += had
    return [float(t / n) if n else None for t, n in zip(total, seen, strict=True)]
