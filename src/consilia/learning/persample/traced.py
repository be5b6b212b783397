"""Any module: one forward, one backward, and a book of every place where a trainable tensor meets data.

Which calls a module makes, and where the rows are in what each is given, is found on trial passes of two and three
rows; the gradients of those three rows are compared with those of one row at a time. A step whose calls are not those of the
trial is left to the slow way.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil, prod, sqrt
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (the name torch documents)

from consilia.learning.flat import FlatModel
from consilia.learning.persample import branches
from consilia.learning.persample.book import Book
from consilia.learning.persample.calls import HANDLERS
from consilia.learning.persample.chain import gradient_of
from consilia.learning.persample.clipping import Clipping, Part, add_clipped
from consilia.learning.persample.engine import Clipped, layer_count
from consilia.learning.persample.entries import parts_of
from consilia.learning.persample.fallback import Fallback
from consilia.learning.persample.parts import Formed
from consilia.learning.persample.place import Place, found
from consilia.learning.persample.tracked import Tracked, Untraceable
from consilia.learning.persample.units import Units, split

_FEW, _MORE = 2, 3
_ELEMENTS_AT_ONCE = 1 << 24  # inputs, slopes and gradients held for a chunk of rows: 64 MiB in float32
_HELD_PER_INPUT = 4  # a layer's input, what follows it, and the slopes of both
_MOST_ROWS = 256

# What a trial found, by shape of a row: a site's model meets it once, not every round. None: left to the slow way.
_plans: WeakKeyDictionary[nn.Module, dict[tuple[int, ...], "_Plan | None"]] = WeakKeyDictionary()


@dataclass(frozen=True)
class _Plan:
    """What a trial found: where rows are in each call, and how many go through in one pass."""

    places: Sequence[Place]
    rows: int


class Traced:
    """Exact for every module that `probe` finds nothing in; as fast as a batch where its layers have fast paths.

    Args:
        model: The model.
        timed: Whether the clock may choose kernels; without it, sums come out bit for bit alike in every process.
    """

    def __init__(self, model: FlatModel, *, timed: bool) -> None:
        self._model, self._timed = model, timed
        self._slow = Fallback.of(model)
        self._plans = _plans.setdefault(model.module, {})
        ids = {id(p): name for name, p in model.parameters.items()}
        self._places = [
            (layer._parameters, leaf, ids[id(p)])
            for layer in model.module.modules()
            for leaf, p in layer._parameters.items()
            if id(p) in ids
        ]
        self._recurrent = [layer for layer in model.module.modules() if isinstance(layer, nn.RNNBase)]
        frozen = [p for p in model.module.parameters() if id(p) not in ids]
        self._constants = frozenset(map(id, [*frozen, *model.module.buffers()]))

    def clipped_sum(self, features: Tensor, labels: Tensor, clipping: Clipping, units: Units | None = None) -> Clipped:
        """Write the sum of clipped gradients to `model.grad`."""
        shape = tuple(features.shape[1:])
        if shape not in self._plans and len(labels):
            self._try(features)
        plan = self._plans.get(shape)
        if plan is not None:
            try:
                return self._sum(features, labels, clipping, units, plan)
            except Untraceable:  # a branch that the trial did not take
                pass
        return self._slow.clipped_sum(features, labels, clipping, units)

    def _sum(self, features: Tensor, labels: Tensor, clipping: Clipping, units: Units | None, plan: _Plan) -> Clipped:
        self._model.grad.zero_()
        norms = []
        chunks = ceil(len(labels) / min(plan.rows, _MOST_ROWS))
        for rows, some in split(len(labels), units, ceil(len(labels) / max(1, chunks))):  # chunks of about one size
            parts = self._parts(features[rows], labels[rows], some, plan.places)
            with torch.no_grad():
                norms.append(add_clipped(parts, clipping, layer_count(self._model)))
        return Clipped(self._model.grad, norms, clipping.bound)

    def _parts(self, x: Tensor, y: Tensor, units: Units | None, plan: Sequence[Place]) -> list[Part]:
        book = self._book(len(y), units, plan)
        with self._replaced(book) as leaves:
            losses = F.cross_entropy(self._model.module(x), y, reduction="none")
            book.backward(losses.sum() if units is None else losses @ units.weights.to(losses))
            return parts_of(self._model, book.entries, leaves)

    def _book(self, rows: int, units: Units | None, plan: Sequence[Place] | None) -> Book:
        return Book(rows, units, HANDLERS, self._constants, plan=plan, timed=self._timed)

    @contextmanager
    def _replaced(self, book: Book) -> Iterator[list[Tracked]]:
        """Put stand-ins in the place of the trainable tensors."""
        stands = {
            name: Tracked.of(p.detach().requires_grad_(), book, name) for name, p in self._model.parameters.items()
        }
        for parameters, leaf, name in self._places:
            parameters[leaf] = stands[name]  # type: ignore[assignment]
        try:
            yield list(stands.values())
        finally:
            for parameters, leaf, name in self._places:
                parameters[leaf] = self._model.parameters[name]
            for layer in self._recurrent:
                layer._init_flat_weights()  # it keeps a list of its own

    def _try(self, features: Tensor) -> None:
        """Find the plan, if the module can be followed; rows that cannot be told apart leave the question open."""
        shape = tuple(features.shape[1:])
        for rows in _trial_rows(features):
            self._plans[shape] = None
            try:
                seen = [self._inputs(rows[:count]) for count in (_FEW, _MORE)]
                places = found(seen[0], seen[1], (_FEW, _MORE))
                parts = self._parts(rows, _labels(rows), None, places)
                if self._agrees(rows, parts):
                    held = _HELD_PER_INPUT * sum(prod(place.shape) for place in places)
                    held += sum(part.each.shape[1] for part in parts if isinstance(part, Formed))
                    self._plans[shape] = _Plan(places, max(1, _ELEMENTS_AT_ONCE // held))
                    return
            except (Untraceable, RuntimeError, IndexError, TypeError, ValueError):
                continue  # foreign code: what it raises is for the slow way to meet

    def _inputs(self, rows: Tensor) -> list[Tensor]:
        book = self._book(len(rows), None, None)
        with self._replaced(book), branches.refused():
            self._model.module(rows)
        return book.seen

    def _agrees(self, rows: Tensor, parts: Sequence[Part]) -> bool:
        """Return True if every row's gradient and norm equal those of the row alone, up to rounding."""
        labels = _labels(rows)
        norms = torch.stack([part.squares() for part in parts]).sum(0).sqrt()
        parameters = list(self._model.parameters.values())
        close = 100 * sqrt(torch.finfo(norms.dtype).eps)
        for row in range(len(rows)):
            self._model.grad.zero_()
            for part in parts:
                part.add(torch.eye(len(rows), dtype=norms.dtype, device=rows.device)[row], None)
            loss = F.cross_entropy(self._model.module(rows[row : row + 1]), labels[:1])
            alone = torch.autograd.grad(loss, parameters, materialize_grads=True)
            whole = float(torch.linalg.vector_norm(torch.cat([g.flatten() for g in alone])))
            apart = sum(float((g - gradient_of(p)).square().sum()) for g, p in zip(alone, parameters, strict=True))
            if not (sqrt(apart) <= close * whole and abs(float(norms[row]) - whole) <= close * whole):
                return False
        return True


def _labels(rows: Tensor) -> Tensor:
    return torch.zeros(len(rows), dtype=torch.int64, device=rows.device)


def _trial_rows(features: Tensor) -> Iterator[Tensor]:
    """Yield three rows to try: random ones; then, for modules that read numbers as names, rows of the batch."""
    generator = torch.Generator().manual_seed(0)
    if features.is_floating_point():
        yield torch.randn(_MORE, *features.shape[1:], generator=generator).to(features)
    finite = features[torch.isfinite(features.flatten(1)).all(1)] if features.is_floating_point() else features
    distinct = torch.unique(finite[:64], dim=0)
    if len(distinct) >= _MORE:
        yield distinct[:: len(distinct) // _MORE][:_MORE]
