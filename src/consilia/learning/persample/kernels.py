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
_LARGE_PATCHES = 40_000  # elements an example: above, copying them costs as much as a grouped convolution
_FEW_CHANNELS = 4  # below, shifted copies beat windows by 1.2 to 6 times; above, they lose up to 3
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
    if len(how.kernel) == 3:
        return [_rows_as_groups]
    return [_rows_as_groups, _row_by_row, *([_windows, _shifted] if how.groups == 1 else [])]


def _by_rule(how: Geometry, x: Tensor, b: Tensor) -> Kernel:
    if how.groups > 1:
        return _rows_as_groups
    if x.shape[1] < _FEW_CHANNELS:
        return _shifted
    return _rows_as_groups if x.shape[1] * prod(how.kernel) * b[0, 0].numel() > _LARGE_PATCHES else _windows


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


def _windows(how: Geometry, x: Tensor, b: Tensor) -> Tensor:
    """One product a row of its slopes and of what each window sees, channels innermost, a few rows at a time."""
    x, slopes, flat = _as_images(how, x, b)
    (high, wide), (down, right), (by, along) = flat.kernel, flat.stride, flat.dilation
    x = F.pad(x, (flat.padding[1],) * 2 + (flat.padding[0],) * 2).permute(0, 2, 3, 1).contiguous()
    rows, channels, sides = len(x), x.shape[3], b.shape[2:] if b.dim() == 4 else (1, *b.shape[2:])
    image, row, column, one = x.stride()
    seen = x.as_strided(
        (rows, *sides, high, wide, channels), (image, row * down, column * right, row * by, column * along, one)
    )
    found = x.new_empty(rows, how.shape[0], how.size // how.shape[0])
    step = max(1, _PATCHES_AT_ONCE // (prod(sides) * found.shape[2]))
    for i in range(0, rows, step):
        some = seen[i : i + step].reshape(-1, prod(sides), found.shape[2])
        torch.bmm(slopes[i : i + step].mT, some, out=found[i : i + step])
    ordered = found.view(rows, how.shape[0], high, wide, channels).movedim(4, 2)
    return ordered if len(how.kernel) == 2 else ordered[:, :, :, 0]


def _shifted(how: Geometry, x: Tensor, b: Tensor) -> Tensor:
    """One product a row of its slopes and of its input, shifted to each place in the window: long copies for few channels."""
    x, slopes, flat = _as_images(how, x, b)
    (high, wide), (down, right), (by, along) = flat.kernel, flat.stride, flat.dilation
    x = F.pad(x, (flat.padding[1],) * 2 + (flat.padding[0],) * 2)
    tall, broad = b.shape[2:] if b.dim() == 4 else (1, b.shape[2])
    places = [
        x[:, :, i * by : i * by + down * (tall - 1) + 1 : down, j * along : j * along + right * (broad - 1) + 1 : right]
        for i in range(high)
        for j in range(wide)
    ]
    seen = torch.stack(places, 2).reshape(len(x), -1, tall * broad)
    return torch.bmm(seen, slopes).view(len(x), *how.shape[1:], how.shape[0]).movedim(-1, 1)


def _as_images(how: Geometry, x: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Geometry]:
    """Return inputs as images, slopes as (rows, positions, out), and the geometry over two dimensions."""
    slopes = b.movedim(1, -1).flatten(1, -2)
    if len(how.kernel) == 2:
        return x, slopes, how
    out, channels, side = how.shape
    flat = Geometry((out, channels, 1, side), (1, *how.stride), (0, *how.padding), (1, *how.dilation), how.groups)
    return x[:, :, None], slopes, flat


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


def patches(how: Geometry, x: Tensor) -> Tensor:
    """Return what each output position of a convolution of images sees, shape (rows, channels * window, positions)."""
    return F.unfold(x, how.kernel, how.dilation, how.padding, how.stride)
