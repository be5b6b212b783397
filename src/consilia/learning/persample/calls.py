"""The calls that have a fast path, by the function that a module ends up in: matrices, sums, products, norms, tables."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (the name torch documents)

from consilia.learning.persample.attention import attention
from consilia.learning.persample.book import Book, Handler
from consilia.learning.persample.convolution import convolution
from consilia.learning.persample.place import Place
from consilia.learning.persample.recurrent import gru, lstm, plain
from consilia.learning.persample.tracked import Call, Tracked, Untraceable, values


def _linear(book: Book, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if isinstance(x, Tracked):
        raise Untraceable("data in the place of a weight")
    return book.tapped(
        x, lambda: F.linear(x, values(weight), values(bias)), lambda place, b: book.pairs(weight, bias, place, x, b)
    )


def _product(book: Book, x: Tensor, weight: Tensor) -> Tensor:
    """Product x @ W: the transposed matrix's slopes and inputs have changed places."""
    if isinstance(x, Tracked) or weight.live.dim() != 2:  # type: ignore[attr-defined]
        raise Untraceable("a product with a trainable tensor that is no matrix on the right")
    return book.tapped(
        x, lambda: torch.matmul(x, values(weight)), lambda place, b: book.pairs(weight, None, place, b, x.detach())
    )


def _sum(book: Book, one: Tensor, other: Tensor) -> Tensor:
    x, weight = (other, one) if isinstance(one, Tracked) else (one, other)
    return _broadcast(book, torch.add, x, weight)


def _times(book: Book, one: Tensor, other: Tensor) -> Tensor:
    x, weight = (other, one) if isinstance(one, Tracked) else (one, other)
    return _broadcast(book, torch.mul, x, weight)


def _broadcast(book: Book, call: Call, x: Tensor, weight: Tensor) -> Tensor:
    """A sum or product of data with a tensor that all rows share."""
    if not isinstance(weight, Tracked) or isinstance(x, Tracked) or weight.live.dim() > x.dim():
        raise Untraceable("a sum or product of another shape")

    def noted(place: Place, b: Tensor) -> None:
        wide = weight.live.dim() == x.dim()
        if not place.plain or (wide and weight.live.shape[0] != 1):
            raise Untraceable("a sum or product along the rows")
        shape = (1,) * (x.dim() - weight.live.dim()) + tuple(weight.live.shape)
        dims = [dim for dim in range(1, x.dim()) if shape[dim] == 1 and b.shape[dim] != 1]
        g = b * x if call is torch.mul else b
        g = g.sum(dims, keepdim=True) if dims else g
        book.each(weight, lambda: g.reshape(len(g), *weight.live.shape))

    return book.tapped(x, lambda: call(x, values(weight)), noted)


def _channel_norm(name: str) -> Handler:
    """Return the handler of a norm with one factor and one offset a channel, which is dimension 1."""
    norm = getattr(F, name)

    def handler(book: Book, x: Tensor, *args: Any, weight: Any = None, bias: Any = None, **more: Any) -> Tensor:
        def noted(place: Place, b: Tensor) -> None:
            if not place.plain:
                raise Untraceable("a norm of unbatched data")
            dims = tuple(range(2, b.dim()))
            scaled = norm(x, *args, **more) * b
            book.each(weight, lambda: scaled.sum(dims) if dims else scaled)
            book.each(bias, lambda: b.sum(dims) if dims else b)

        return book.tapped(x, lambda: norm(x, *args, weight=values(weight), bias=values(bias), **more), noted)

    return handler


def _group_norm(
    book: Book, x: Tensor, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:  # fmt: skip
    return _channel_norm("group_norm")(book, x, groups, weight=weight, bias=bias, eps=eps)


def _layer_norm(
    book: Book, x: Tensor, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float | None = 1e-5
) -> Tensor:  # fmt: skip
    """LayerNorm and RMSNorm: factors and offsets for every entry of the last dimensions."""
    call: Any = F.layer_norm

    def noted(place: Place, b: Tensor) -> None:
        size = len(shape)
        for tensor, slope in ((weight, lambda: call(x, shape, None, None, eps) * b), (bias, lambda: b)):
            if isinstance(tensor, Tracked):
                rows = place.front(slope(), book.rows)
                dims = tuple(range(1, rows.dim() - size))
                g = rows.sum(dims) if dims else rows
                book.each(tensor, lambda g=g: g)  # type: ignore[misc]

    return book.tapped(x, lambda: call(x, shape, values(weight), values(bias), eps), noted)


def _rms_norm(book: Book, x: Tensor, shape: Sequence[int], weight: Any = None, eps: float | None = None) -> Tensor:
    def noted(place: Place, b: Tensor) -> None:
        rows = place.front(F.rms_norm(x, list(shape), None, eps) * b, book.rows)
        dims = tuple(range(1, rows.dim() - len(shape)))
        book.each(weight, lambda: rows.sum(dims) if dims else rows)

    return book.tapped(x, lambda: F.rms_norm(x, list(shape), values(weight), eps), noted)


def _embedding(
    book: Book, ids: Tensor, weight: Tracked, padding_idx: int | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Tensor:  # fmt: skip
    if max_norm is not None or scale_grad_by_freq:
        raise Untraceable("an embedding that looks at other rows or changes its table")

    def noted(place: Place, b: Tensor) -> None:
        if padding_idx is not None:
            b = b.masked_fill((ids == padding_idx % len(weight.live))[..., None], 0)
        book.looked_up(weight, place, ids, b)

    return book.tapped(ids, lambda: F.embedding(ids, values(weight)), noted)


HANDLERS: dict[Call, Handler] = {
    F.linear: _linear,
    torch.matmul: _product, Tensor.matmul: _product, torch.mm: _product, Tensor.mm: _product,
    torch.add: _sum, Tensor.add: _sum,
    torch.mul: _times, Tensor.mul: _times,
    F.group_norm: _group_norm, F.instance_norm: _channel_norm("instance_norm"),
    F.layer_norm: _layer_norm, F.rms_norm: _rms_norm,
    F.embedding: _embedding,
    F.conv1d: convolution(1), F.conv2d: convolution(2), F.conv3d: convolution(3),
    torch.lstm: lstm, torch.gru: gru, torch.rnn_tanh: plain("tanh"), torch.rnn_relu: plain("relu"),
    F.multi_head_attention_forward: attention,
}  # fmt: skip
