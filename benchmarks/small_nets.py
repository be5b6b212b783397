"""Two small convolutional nets for 28 x 28 images, alike but for their norm layers: what FedBN keeps at the site.

They stride where `mnist-cnn` pools: on a CPU pooling takes most of that model's time.
"""

from collections.abc import Sequence

from torch import nn


def plain(input_shape: Sequence[int], classes: int) -> nn.Module:
    """Return conv 16, 32, 32 and a linear layer, about 20,000 parameters for ten classes."""
    return _build(input_shape, classes, norm=False)


def batch_norm(input_shape: Sequence[int], classes: int) -> nn.Module:
    """Return the same net with BatchNorm after each convolution."""
    return _build(input_shape, classes, norm=True)


def _build(input_shape: Sequence[int], classes: int, *, norm: bool) -> nn.Module:
    channels, height, width = input_shape
    layers: list[nn.Module] = []
    for before, after, kernel in ((channels, 16, 5), (16, 32, 3), (32, 32, 3)):
        layers.append(nn.Conv2d(before, after, kernel, stride=2, padding=kernel // 2))
        if norm:
            layers.append(nn.BatchNorm2d(after))
        layers.append(nn.ReLU())
    side = -(-height // 8) * -(-width // 8)  # three strides of 2, each rounding up
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * side, classes))
