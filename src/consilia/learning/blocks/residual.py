"""The residual block of the image nets, with GroupNorm in place of BatchNorm."""

from collections.abc import Callable

from torch import Tensor, nn

from consilia.learning.blocks.convolution import WeightStandardizedConv2d
from consilia.learning.blocks.norm import group_norm


class Residual(nn.Module):
    """act(GN(conv(act(GN(conv(x))))) + skip(x)); a skip that changes shape is a 1 x 1 convolution.

    Source:
        He et al. (2016), Deep residual learning for image recognition, figure 2; Wu and He (2018), Group normalization.
    """

    def __init__(
        self, before: int, after: int, *, stride: int, act: Callable[[], nn.Module], standardized: bool = False
    ) -> None:
        super().__init__()
        self.body = nn.Sequential(
            convolution(before, after, 3, stride=stride, padding=1, standardized=standardized), group_norm(after), act(),
            convolution(after, after, 3, stride=1, padding=1, standardized=standardized), group_norm(after),
        )  # fmt: skip
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.skip = convolution(before, after, 1, stride=stride, padding=0, standardized=standardized)
        self.act = act()

    def forward(self, x: Tensor) -> Tensor:
        """Return shape (b, after, height / stride, width / stride), rounded up."""
        y: Tensor = self.act(self.body(x) + self.skip(x))
        return y


def convolution(before: int, after: int, size: int, *, stride: int, padding: int, standardized: bool) -> nn.Conv2d:
    """Return a convolution without bias (a norm follows that has one)."""
    kind = WeightStandardizedConv2d if standardized else nn.Conv2d
    return kind(before, after, size, stride=stride, padding=padding, bias=False)
