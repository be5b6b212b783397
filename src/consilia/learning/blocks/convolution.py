"""Convolutions whose kernels are standardised, which per-example clipping likes: no kernel's scale or mean can drift."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (the name torch documents)

from consilia.core.errors import PlanError

_EPSILON = 1e-4


class WeightStandardizedConv2d(nn.Conv2d):
    """A convolution by w' = (w - mean(w)) / sqrt(N var(w) + 1e-4), mean and variance over the N weights of an output.

    The kernels w' have mean zero and norm one, so that outputs keep the variance of the inputs, at any size of the kernel.

    A per-example gradient of w is one linear map, the same for every example, of that of w', which no example enters: clipping
    per example stays as cheap as for a plain convolution.

    Source:
        Qiao et al. (2019), Micro-batch training with batch-channel normalization and weight standardization, equation 4; the
        factor N: Brock, De and Smith (2021), Characterizing signal propagation to close the performance gap in unnormalized
        ResNets, equation 4.
    """

    def __init__(
        self, channels: int, out: int, kernel_size: int, *, stride: int = 1, padding: int = 0, bias: bool = True
    ) -> None:
        if channels * kernel_size**2 < 2:
            raise PlanError.of("weight standardisation", needs="at least two weights for an output",
                               got="a 1 x 1 kernel over one channel", hint="Use a plain convolution there")  # fmt: skip
        super().__init__(channels, out, kernel_size, stride=stride, padding=padding, bias=bias)

    def standardized(self) -> Tensor:
        """Return w', shape (out, channels, height, width)."""
        return self._centred() * self._scale()

    def forward(self, x: Tensor) -> Tensor:
        """Convolve, shape (b, out, height', width')."""
        return F.conv2d(x, self.standardized(), self.bias, self.stride, self.padding)

    def _centred(self) -> Tensor:
        return self.weight - self.weight.mean((1, 2, 3), keepdim=True)

    def _scale(self) -> Tensor:
        return torch.rsqrt(self._centred().square().sum((1, 2, 3), keepdim=True) + _EPSILON)
