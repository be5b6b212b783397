"""What one pass through a model leaves to be clipped: inputs and slopes wherever a trainable tensor was used."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from consilia.learning.persample.entries import Each, Entry, Lookup, Pairs
from consilia.learning.persample.place import Place
from consilia.learning.persample.tracked import Call, Tracked, Untraceable
from consilia.learning.persample.units import Units

Handler = Callable[..., Any]


class Book:
    """One pass's uses of trainable tensors.

    Attributes:
        rows: Rows of the pass.
        units: Which rows belong together; None: each row by itself.
        timed: Whether kernels may be chosen by the clock.
        seen: Inputs that calls were given; kept on a trial pass only.
        entries: What was found, in no order.
    """

    def __init__(
        self, rows: int, units: Units | None, handlers: dict[Call, Handler], constants: frozenset[int], *,
        plan: Sequence[Place] | None, timed: bool,
    ) -> None:  # fmt: skip
        self.rows, self.units, self.timed, self.constants = rows, units, timed, constants
        self.seen: list[Tensor] = []
        self.entries: list[Entry] = []
        self._handlers, self._plan, self._calls = handlers, plan, 0
        self._start = torch.zeros((), requires_grad=True)

    def used(self, call: Call, args: Sequence[Any], more: dict[str, Any]) -> Any:
        """Carry out a call that data and trainable tensors meet in, and write down what its gradients need.

        Raises:
            Untraceable: If no fast path covers the call.
        """
        handler = self._handlers.get(call)
        if handler is None:
            raise Untraceable(f"{getattr(call, '__name__', call)} of a trainable tensor")
        return handler(self, *args, **more)

    def tapped(self, x: Tensor, compute: Callable[[], Tensor], on_slope: Callable[[Place, Tensor], None]) -> Tensor:
        """Compute a layer's output, and hand its slope over when the backward pass comes by.

        Args:
            x: The layer's data.
            compute: The output; no graph leads from it to trainable tensors.
            on_slope: Takes where rows are in `x` and the gradient at the output.

        Raises:
            Untraceable: If `x` is not as on the trial, or is changed in place later.
        """
        if self._plan is None:
            self.seen.append(x.detach().clone())
            return compute()
        if self._calls == len(self._plan):
            raise Untraceable("more calls than on the trial")
        place = self._plan[self._calls]
        self._calls += 1
        place.check(x, self.rows)
        version = x._version

        def told(slope: Tensor) -> None:
            if x._version != version:
                raise Untraceable("a layer's input is changed in place")
            on_slope(place, slope)

        if x.requires_grad:
            out = compute()
            if out._is_view():
                return _Passed.apply(out, told)  # type: ignore[no-any-return,no-untyped-call]
            out.register_hook(told)  # type: ignore[no-untyped-call]  # sees the value as it is now, even if changed in place later
            return out
        return _Started.apply(self._start, compute, told)  # type: ignore[no-any-return,no-untyped-call]

    def backward(self, loss: Tensor) -> None:
        """Send the slopes of a loss back to every call.

        Raises:
            Untraceable: If the loss does not follow from any call.
        """
        if self._plan is None or self._calls != len(self._plan) or not loss.requires_grad:
            raise Untraceable("fewer calls than on the trial")
        torch.autograd.grad(loss, [self._start], allow_unused=True)

    # What handlers write down.

    def pairs(self, weight: Tensor, bias: Tensor | None, place: Place, a: Tensor, b: Tensor) -> None:
        """Note that outputs with slopes b, (..., out), followed from inputs a, (..., in), by a matrix (out, in)."""
        a, b = (self._positions(place.front(t, self.rows)) for t in (a.detach(), b))
        self.entries.append(Pairs(_or_none(weight), _or_none(bias), a, b))

    def looked_up(self, weight: Tracked, place: Place, ids: Tensor, b: Tensor) -> None:
        """Note that rows `ids` of a matrix were copied to outputs with slopes b, (*ids.shape, width)."""
        numbers = self._positions(place.front(ids, self.rows)[..., None])[..., 0]
        self.entries.append(Lookup(weight, numbers, self._positions(place.front(b, self.rows))))

    def each(self, weight: Tensor | None, gradients: Callable[[], Tensor]) -> None:
        """Note each row's gradient, shape (rows, *weight.shape), written out."""
        if isinstance(weight, Tracked):
            g = gradients()
            self.entries.append(Each(weight, g if self.units is None else self.units.summed(g)))

    def _positions(self, x: Tensor) -> Tensor:
        """Return (rows, ..., width) as (units, positions, width)."""
        x = x.reshape(len(x), -1, x.shape[-1])
        return x if self.units is None else self.units.padded(x).flatten(1, 2)


class _Started(torch.autograd.Function):
    """A layer whose data need no gradient: the graph starts here, at a tensor of its own that may be changed in place."""

    @staticmethod
    def forward(ctx: Any, start: Tensor, compute: Callable[[], Tensor], told: Callable[[Tensor], None]) -> Tensor:
        ctx.told = told
        return _no_view(compute())

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[None, None, None]:
        ctx.told(slopes[0])
        return None, None, None


class _Passed(torch.autograd.Function):
    """An output that is a view: a hook on it would not be called once it is changed in place."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, told: Callable[[Tensor], None]) -> Tensor:
        ctx.told = told
        return _no_view(out)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None]:
        ctx.told(slopes[0])
        return slopes[0], None


def _no_view(out: Tensor) -> Tensor:
    """Return the same memory as a tensor of its own: torch lets nobody change a custom function's view in place."""
    if not out._is_view():
        return out
    return out.new_empty(0).set_(out.untyped_storage(), out.storage_offset(), out.shape, out.stride())


def _or_none(tensor: Tensor | None) -> Tracked | None:
    return tensor if isinstance(tensor, Tracked) else None
