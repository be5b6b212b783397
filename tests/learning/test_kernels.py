"""A layer's own arithmetic: every kernel of a convolution, and norms from pairs of positions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F  # noqa: N812

from consilia.learning.persample import kernels, parts


@pytest.mark.parametrize("kernel", [kernels._rows_as_groups, kernels._row_by_row, kernels._windows, kernels._shifted])
@settings(max_examples=25, deadline=None)
@given(
    channels=st.integers(1, 3), out=st.integers(1, 3), side=st.integers(5, 8),
    window=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 2)), padding=st.tuples(st.integers(0, 2), st.integers(0, 1)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)), flat=st.booleans(), last=st.booleans(), rows=st.integers(1, 4),
)  # fmt: skip
def test_every_kernel_writes_out_the_same_gradients(
    kernel: kernels.Kernel, channels: int, out: int, side: int, window: tuple[int, int], stride: tuple[int, int],
    padding: tuple[int, int], dilation: tuple[int, int], flat: bool, last: bool, rows: int,
) -> None:  # fmt: skip
    arguments = [pair[1:] if flat else pair for pair in (window, stride, padding, dilation)]
    how = kernels.Geometry((out, channels, *arguments[0]), arguments[1], arguments[2], arguments[3], 1)
    x = torch.randn(rows, channels, *((side,) if flat else (side, side + 1)), dtype=torch.float64)
    weight = torch.randn(how.shape, dtype=torch.float64, requires_grad=True)
    call = F.conv1d if flat else F.conv2d
    b = torch.randn_like(call(x, weight, None, how.stride, how.padding, how.dilation))
    if last and not flat:
        x, b = (t.contiguous(memory_format=torch.channels_last) for t in (x, b))
    expected = torch.stack([
        torch.autograd.grad(call(x[i : i + 1], weight, None, how.stride, how.padding, how.dilation), weight, b[i : i + 1])[0]
        for i in range(rows)
    ])  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "_PATCHES_AT_ONCE", 50)
        torch.testing.assert_close(kernel(how, x, b), expected, rtol=1e-10, atol=1e-10)


def test_pairs_that_cancel_are_not_understated() -> None:
    """Rows of one unit whose gradients nearly cancel: the norm from pairs may not come out too small, nor be no number."""
    a = torch.randn(1, 1, 8).repeat(1, 6, 1) * 1e3
    b = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0]).view(1, 6, 1) * torch.randn(1, 1, 9) * 1e3
    b[0, 0] *= 1 + 1e-4
    true = float(torch.einsum("uto,uti->oi", b.double(), a.double()).norm())
    part = parts.Outer("layer", a, b, torch.zeros(9, 8), None)
    assert float(part.squares().sqrt()[0]) >= true
    monkey = pytest.MonkeyPatch()
    monkey.setattr(parts, "_slack", lambda sizes: 0 * sizes.sum(1))
    bare = [
        float(parts.Outer("layer", a * s, b, torch.zeros(9, 8), None).squares().sqrt()[0]) / s for s in (1.0, 1.1, 1.3)
    ]
    monkey.undo()
    assert any(not norm >= true for norm in bare), "without the allowance it would be"
