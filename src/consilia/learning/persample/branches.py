"""Notice when a module's code looks at values: a branch on those of a batch would tie its rows together."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from consilia.learning.persample.tracked import Call, Untraceable

_LOOKS = {
    torch.ops.aten._local_scalar_dense, torch.ops.aten.is_nonzero, torch.ops.aten.equal, torch.ops.aten.nonzero,
    torch.ops.aten.masked_select, torch.ops.aten._unique2, torch.ops.aten.unique_consecutive, torch.ops.aten.unique_dim,
}  # fmt: skip
_TAKES = {Tensor.numpy, Tensor.tolist, Tensor.__array__}


class _Kernels(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in _LOOKS:
            raise Untraceable("a module that looks at values")
        return func(*args, **(kwargs or {}))


class _Functions(TorchFunctionMode):
    def __torch_function__(self, func: Call, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        if func in _TAKES:
            raise Untraceable("a module that takes values elsewhere")
        return func(*args, **(kwargs or {}))


@contextmanager
def refused() -> Iterator[None]:
    """Let nobody look at values inside.

    Raises:
        Untraceable: If somebody does.
    """
    with _Functions(), _Kernels():  # type: ignore[no-untyped-call]
        yield
