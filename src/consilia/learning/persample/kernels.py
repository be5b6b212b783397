"""Ways to write out each example's weight gradient of a convolution. Which is quickest differs up to fourfold by shape."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from time import process_time
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (the name torch documents)

_PATCHES_AT_ONCE = 1 << 20  # elements of unfolded inputs: small enough to stay in the cache
_LARGE_PATCHES = 40_000  # elements an example: above, copying them costs more than a call for each example
_FEW_CHANNELS = 4  # below, one grouped convolution beats unfolding by 1.2 to 2 times; above, it loses up to 2
_TRIES = 3


@dataclass(frozen=True)
class Geometry:
    """A convolution's shape and arguments.

    Attributes:
        shape: Of the weight, (out, in / groups, *kernel).
        stride: Per dimension.
        padding: Per dimension, on both sides.
        dilation: Per dimension.
        groups: Of channels.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @classmethod
    def of(cls, shape: tuple[int, ...], stride: Any, padding: Any, dilation: Any, groups: int) -> "Geometry":
        """Return the geometry of a call's arguments; each may be one number for all dimensions."""
        dims = len(shape) - 2
        return cls(shape, _all(stride, dims), _all(padding, dims), _all(dilation, dims), groups)

    @property
    def kernel(self) -> tuple[int, ...]:
        """Sides of the window."""
        return self.shape[2:]

    @property
    def size(self) -> int:
        """Number of weights."""
        return prod(self.shape)


def _all(value: Any, dims: int) -> tuple[Any, ...]:
    found: tuple[Any, ...] = (value,) if isinstance(value, int) else tuple(value)
    return found * dims if len(found) == 1 else found


def padded(x: Tensor, kernel: tuple[int, ...], padding: str, dilation: Any) -> Tensor:
    """Return an input with the border that a padding given by name stands for.

    Args:
        x: Shape (rows, channels, *sides).
        kernel: Sides of the window.
        padding: "valid" or "same".
        dilation: As the convolution was called.
    """
    if padding == "valid":
        return x
    borders: list[int] = []
    for side, apart in zip(kernel[::-1], _all(dilation, len(kernel))[::-1], strict=True):
        whole = apart * (side - 1)
        borders += [whole // 2, whole - whole // 2]
    return F.pad(x, borders)


def weight_gradients(how: Geometry, x: Tensor, b: Tensor, *, timed: bool) -> Tensor:
    """Return each row's weight gradient, shape (rows, *how.shape).

    Args:
        how: The convolution.
        x: Inputs, shape (rows, channels, *sides).
        b: Gradients at the outputs, shape (rows, out, *sides).
        timed: Whether the clock chooses among the kernels, once for a shape; otherwise a rule does, which rounds alike in
            every process.
    """
    kernels = _kernels(how)
    if len(kernels) == 1:
        return kernels[0](how, x, b)
    if not timed:
        return _by_rule(how, x, b)(how, x, b)
    key = (how, tuple(x.shape[1:]), len(x).bit_length(), x.dtype, x.device, torch.get_num_threads())
    if key not in _quickest:
        _quickest[key] = min(kernels, key=lambda kernel: _seconds(kernel, how, x, b))
    return _quickest[key](how, x, b)


Kernel = Callable[[Geometry, Tensor, Tensor], Tensor]
_quickest: dict[object, Kernel] = {}  # speeds of this machine, not state of a model: shared by all of a process


def _kernels(how: Geometry) -> list[Kernel]:
    found: list[Kernel] = [_rows_as_groups] if how.groups > 1 else [_rows_as_groups, _channels_as_batch]
    if len(how.kernel) < 3:
        found.append(_unfolded)
    if len(how.kernel) == 2:
        found.append(_row_by_row)
    return found


def _by_rule(how: Geometry, x: Tensor, b: Tensor) -> Kernel:
    if how.groups > 1 or len(how.kernel) != 2:
        return _rows_as_groups
    if x.shape[1] < _FEW_CHANNELS:
        return _channels_as_batch
    return _row_by_row if x.shape[1] * prod(how.kernel) * b[0, 0].numel() > _LARGE_PATCHES else _unfolded


def _seconds(kernel: Kernel, how: Geometry, x: Tensor, b: Tensor) -> float:
    """Return the least CPU time of a few tries: another process's work is not this kernel's."""
    kernel(how, x, b)
    times = []
    for _ in range(_TRIES):
        begun = process_time()
        kernel(how, x, b)
        times.append(process_time() - begun)
    return min(times)


def _rows_as_groups(how: Geometry, x: Tensor, b: Tensor) -> Tensor:
    """All rows as groups of one large convolution, whose weight gradient torch then writes out row by row."""
    rows, out = len(x), how.shape[0]
    weight = x.new_empty(()).expand(rows * out, *how.shape[1:])
    _, found, _ = torch.ops.aten.convolution_backward(
        b.reshape(1, rows * out, *b.shape[2:]), x.reshape(1, -1, *x.shape[2:]), weight, None, how.stride, how.padding,
        how.dilation, False, [0] * len(how.kernel), rows * how.groups, [False, True, False],
    )  # fmt: skip
    each: Tensor = found.view(rows, *how.shape)
    return each


def _channels_as_batch(how: Geometry, x: Tensor, b: Tensor) -> Tensor:
    """Channels as the batch, rows as groups: each row's slopes are kernels that pass over its own inputs."""
    rows, out = len(x), how.shape[0]
    call = (F.conv1d, F.conv2d, F.conv3d)[len(how.kernel) - 1]
    found: Tensor = call(
        x.transpose(0, 1), b.reshape(rows * out, 1, *b.shape[2:]), None, how.dilation, how.padding, how.stride, rows
    )
    found = found[(slice(None), slice(None), *(slice(side) for side in how.kernel))]  # what a stride left over
    return found.reshape(len(found), rows, out, *how.kernel).movedim(0, 2)


def _unfolded(how: Geometry, x: Tensor, b: Tensor) -> Tensor:
    """One product a row of its slopes and its patches, a few rows at a time."""
    rows, positions = len(x), b[0, 0].numel()
    found = x.new_empty(rows * how.groups, how.shape[0] // how.groups, how.size // how.shape[0])
    step = max(1, _PATCHES_AT_ONCE // (how.groups * found.shape[2] * positions))
    for i in range(0, rows, step):
        some = slice(i * how.groups, min(i + step, rows) * how.groups)
        slopes = b[i : i + step].reshape(-1, found.shape[1], positions)
        torch.bmm(slopes, patches(how, x[i : i + step]).view(len(slopes), -1, positions).mT, out=found[some])
    return found.view(rows, *how.shape)


def patches(how: Geometry, x: Tensor) -> Tensor:
    """Return what each output position sees, shape (rows, channels * window, positions); one or two dimensions."""
    if len(how.kernel) == 2:
        return F.unfold(x, how.kernel, how.dilation, how.padding, how.stride)
    (side,), (apart,), (border,), (step,) = how.kernel, how.dilation, how.padding, how.stride
    return F.unfold(x[:, :, None], (1, side), (1, apart), (0, border), (1, step))


def _row_by_row(how: Geometry, x: Tensor, b: Tensor) -> Tensor:
    """A call for each row."""
    weight = x.new_empty(()).expand(how.shape)
    return torch.cat([
        torch.ops.aten.convolution_backward(
            b[i : i + 1], x[i : i + 1], weight, None, how.stride, how.padding, how.dilation, False,
            [0] * len(how.kernel), how.groups, [False, True, False],
        )[1][None]
        for i in range(len(x))
    ])  # fmt: skip
