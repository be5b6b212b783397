"""Multi-head attention: torch's own code, with its matrices written down like any other."""

from types import FunctionType
from typing import Any

from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (the name torch documents)

from consilia.learning.persample.book import Book

# The same code, but its check for stand-ins answers no: it would hand itself over to this module again, for ever. What it
# calls meets the stand-ins, and is written down.
_INSIDE = FunctionType(
    F.multi_head_attention_forward.__code__,
    {**F.__dict__, "has_torch_function": lambda _tensors: False},
    "multi_head_attention_forward",
    F.multi_head_attention_forward.__defaults__,
)
_INSIDE.__kwdefaults__ = F.multi_head_attention_forward.__kwdefaults__


def attention(_book: Book, *args: Any, **more: Any) -> tuple[Tensor, Tensor | None]:
    """Return what torch's function does."""
    found: tuple[Tensor, Tensor | None] = _INSIDE(*args, **more)
    return found
