"""Does a model treat each example alone? Asked of the model itself: layers of one's own have no known kind.

A probe finds what happens on the rows it tries; a branch that those rows don't take stays unseen.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from consilia.core.errors import Problem
from consilia.learning.seeded import seeded

_WHO = "per-example clipping"
_ROWS = 4
_SEED, _OTHER_SEED = 1, 2
# Runs of one kernel on one shape differ by rounding at most; what mixes examples or draws differs by far more.
_ROUNDING = 1e3


def mixed_examples(model: nn.Module, input_shape: Sequence[int]) -> list[Problem]:
    """Return in which ways one row's output depends on anything but that row and the weights.

    Copies of the model are called on a few random rows, in training and in evaluation mode (charged metrics count rows one
    by one). The model and torch's global generator are left as they were.

    Args:
        model: The built model.
        input_shape: Shape of one example's features.
    """
    try:
        with seeded(_SEED):
            kind = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
            rows, others = torch.randn(2, _ROWS, *input_shape, dtype=kind)
            others[0] = rows[0]
            found = [*_faults(model, rows, others, training=True), *_faults(model, rows, others, training=False)]
    except Exception as error:  # foreign code: whatever it raises is a fault of the plan's model
        return [Problem(_WHO, "a model that can be copied and called on random rows", f"{type(error).__name__}: {error}",
                        "Try it in training mode: model.train()(torch.randn(4, ...))")]  # fmt: skip
    return list(dict.fromkeys(found))


def _faults(model: nn.Module, rows: Tensor, others: Tensor, *, training: bool) -> list[Problem]:
    def fresh() -> nn.Module:
        return copy.deepcopy(model).train(training)

    found, first = [], fresh()
    before = copy.deepcopy(_tensors(first))
    expected = _call(first, rows, _SEED)
    changed = [
        name for name, tensor in _tensors(first).items() if name not in before or not _same(tensor, before[name])
    ]
    if changed:
        found.append(Problem(_WHO, "a forward pass that changes no buffer or parameter", f"a change of {', '.join(changed)}",
                             "Keep no running statistics; GroupNorm needs none"))  # fmt: skip
    _call(first, others, _SEED)
    if not changed and not _same(_call(first, rows, _SEED), expected):
        found.append(Problem(_WHO, "outputs that do not depend on earlier calls", "others after another batch",
                             "Keep nothing from one call to the next, and draw nothing at random"))  # fmt: skip
    if not _same(_call(fresh(), rows, _OTHER_SEED), expected):
        found.append(Problem(_WHO, "a model that draws nothing at random", "other outputs with another seed",
                             "Remove dropout and what else draws"))  # fmt: skip
    if not _same(_call(fresh(), others, _SEED)[:1], expected[:1]):
        found.append(Problem(_WHO, "a model that treats each example alone", "outputs that follow the other rows of a batch",
                             "Replace what normalises or pools over the batch, as with torch.nn.GroupNorm"))  # fmt: skip
    return found


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach() for name, tensor in [*model.named_parameters(), *model.named_buffers()]}


def _call(model: nn.Module, rows: Tensor, seed: int) -> Tensor:
    torch.manual_seed(seed)
    with torch.no_grad():
        out: Tensor = model(rows)
    return out.clone()


def _same(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or not a.is_floating_point():
        return torch.equal(a, b)
    finite = b[torch.isfinite(b)].abs()
    scale = float(finite.max()) if finite.numel() else 1.0
    return torch.allclose(a, b, rtol=0.0, atol=_ROUNDING * torch.finfo(b.dtype).eps * scale, equal_nan=True)
