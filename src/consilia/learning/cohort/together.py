"""Which sites are trained together, and what happens to those that cannot be."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import fields
from operator import attrgetter

from torch import nn

from consilia.learning.cohort.lockstep import Result, in_lock_step
from consilia.learning.cohort.task import Task, alone, fits
from consilia.learning.flat import FlatModel
from consilia.learning.work import LocalWork

_log = logging.getLogger("consilia.cohort")
_ELEMENTS_AT_ONCE = 1 << 20  # of rows, activations and parameters: what a chunk of sites holds stays bounded
_MOST_ROWS = 2048  # `private` adds up more rows than this in parts

# What sites in lock step may differ in is set aside.
_own = {"steps", "batch_size", "sampling_rate", "batch_cap", "expected_batch"}
_common = attrgetter(*(field.name for field in fields(LocalWork) if field.name not in _own))

Kind = tuple[object, ...]


def train_together(model: FlatModel, tasks: Sequence[Task]) -> list[Result]:
    """Do many sites' work; each result is that of `alone` up to rounding, in the order of the tasks.

    Args:
        model: Their model; its values are overwritten where a task does not fit.
        tasks: One for each site.

    Returns:
        A site's result, or what it raised: one site's fault costs no other its result.

    Guarantees:
        As `learning.local.train` for each site: batches and noise come from the site's own streams, in the same order, and
        nothing of a site's rows enters another's result.
    """
    outcomes: dict[int, Result] = {}
    together: dict[Kind, list[int]] = {}
    fitting: dict[Kind, bool] = {}
    sides = [
        (layer.in_features, layer.out_features) for layer in model.module.modules() if isinstance(layer, nn.Linear)
    ]
    width, widest = (sides[0][0], max(map(max, sides))) if sides else (0, 0)
    for number, task in enumerate(tasks):
        kind = (_common(task.work), task.features.dim(), task.control is not None)
        if kind not in fitting:
            fitting[kind] = fits(model, task.work, task.features.dim())
        if fitting[kind] and _sound(model, task, width):
            together.setdefault(kind, []).append(number)
        else:
            outcomes[number] = _alone(model, task)
    for numbers in together.values():
        for chunk in _chunks(model, tasks, numbers, widest):
            members = [tasks[number] for number in chunk]
            try:
                found = in_lock_step(model, members, width)
            except Exception:  # nothing of the chunk has left it: its sites can begin again, with fresh draws
                _log.exception("%d sites could not be trained together; each is trained alone", len(members))
                found = [_alone(model, task) for task in members]
            outcomes.update(zip(chunk, found, strict=True))
    return [outcomes[number] for number in range(len(tasks))]


def _sound(model: FlatModel, task: Task, width: int) -> bool:
    # Whatever is wrong with a site's arrays is told by its own training.
    rows, labels = task.features, task.labels
    return (
        not task.local
        and task.patients is None
        and task.start.shape == (model.dim,)
        and (task.control is None or all(vector.shape == (model.dim,) for vector in task.control))
        and len(rows) == len(labels) <= _MOST_ROWS
        and rows.numel() == len(rows) * width
        and rows.dtype == model.trainable.dtype
    )


def _alone(model: FlatModel, task: Task) -> Result:
    try:
        return alone(model, task)
    except Exception as error:  # the site's own: its caller answers for it
        return error


def _chunks(model: FlatModel, tasks: Sequence[Task], numbers: list[int], widest: int) -> Iterator[list[int]]:
    """Yield sites of like size together, those with most steps first: as many as fit into a bounded memory."""
    order = sorted(numbers, key=lambda number: (-tasks[number].work.steps, -len(tasks[number].labels)))
    chunk: list[int] = []
    largest = 0
    for number in order:
        task = tasks[number]
        size = task.features.numel() + _longest(task) * widest + model.dim
        largest = max(largest, size)
        if chunk and largest * (len(chunk) + 1) > _ELEMENTS_AT_ONCE:
            yield chunk
            chunk, largest = [], size
        chunk.append(number)
    if chunk:
        yield chunk


def _longest(task: Task) -> int:
    work, count = task.work, len(task.labels)
    bound = {"full": None, "fixed": work.batch_size, "poisson": work.batch_cap}[work.batch]
    return count if bound is None else min(count, bound)
