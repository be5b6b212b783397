"""Convolutions: each example's weight gradient, by the kernel that suits the shape.

Source:
    Rochette, Manoel and Tramel (2019), Efficient per-example gradient computations in convolutional neural networks
    (grouped convolution); Bu et al. (2022), Scalable and efficient training of large convolutional neural networks with
    differential privacy, section 3 (pairs of positions where they are few).
"""

from typing import Any

import torch
from torch import Tensor

from consilia.learning.persample.book import Book, Handler
from consilia.learning.persample.kernels import Geometry, padded, patches, weight_gradients
from consilia.learning.persample.place import Place
from consilia.learning.persample.tracked import Tracked, Untraceable, values

_COSTLIER = 8  # an operation of the pairs costs so many of one product that writes gradients out


def convolution(dims: int) -> Handler:
    """Return the handler of a convolution over so many dimensions."""
    call = (torch.conv1d, torch.conv2d, torch.conv3d)[dims - 1]

    def handler(
        book: Book, x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        if isinstance(x, Tracked):
            raise Untraceable("data in the place of a weight")

        def noted(place: Place, b: Tensor) -> None:
            if not place.plain or x.dim() != dims + 2:
                raise Untraceable("a convolution of unbatched data")
            shape = tuple(weight.live.shape) if isinstance(weight, Tracked) else tuple(weight.shape)
            data = padded(x, shape[2:], padding, dilation) if isinstance(padding, str) else x
            how = Geometry.of(shape, stride, 0 if isinstance(padding, str) else padding, dilation, groups)
            if isinstance(weight, Tracked) and weight.label and _few_positions(b, how):
                book.pairs(weight, bias, place, patches(how, data).mT, b.flatten(2).mT)
                return
            book.each(weight, lambda: weight_gradients(how, data, b, timed=book.timed))
            book.each(bias, lambda: b.sum(tuple(range(2, b.dim()))))

        if dims == 2 and x.dim() == 4 and x.device.type == "cpu":
            x = _channels_last(x)
        return book.tapped(x, lambda: call(x, values(weight), values(bias), stride, padding, dilation, groups), noted)

    return handler


def _few_positions(b: Tensor, how: Geometry) -> bool:
    """Return True if pairs of positions cost less than writing gradients out: many channels, hardly any places."""
    positions, out = b[0, 0].numel(), b.shape[1]
    patch = how.size // out
    return how.groups == 1 and len(how.kernel) == 2 and _COSTLIER * positions * (patch + out) < patch * out


def _channels_last(x: Tensor) -> Tensor:
    """Return images with their channels innermost, as outputs will be: torch's pooling is up to ten times quicker on those."""
    if x.shape[1] > 1:
        return x.contiguous(memory_format=torch.channels_last)
    # One channel fits both orders; a stride of one says which is meant.
    x = x.contiguous()
    return x.as_strided(x.shape, (x.stride(0), 1, *x.stride()[2:]))
