"""Weights to start from: read from a safetensors file, which can hold nothing but tensors."""

import hashlib
import stat
from dataclasses import dataclass
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from consilia.core.errors import PlanError, Problem
from consilia.learning.flat import FlatModel, head_layer

_WHO = "plan key model.initial"
_RUN = "parameter."
_SLACK = 1 << 28  # bytes of header and of a head for other classes that a file may have beyond the model's

_MOST_FAULTS = 20


@dataclass(frozen=True)
class Initial:
    """What was taken from a file.

    Attributes:
        sha256: Of the file's bytes, in hex.
        left_out: The head's tensors that still stand as the seed made them.
    """

    sha256: str
    left_out: tuple[str, ...]


def load_initial(path: Path, model: FlatModel, *, other_head: bool = False) -> Initial:
    """Set the model to the weights in a file, by name and shape; nothing is changed where one does not fit.

    The names are those of the module's `state_dict`, as `consilia export` writes them; the model.safetensors in a run's folder
    will do, too. Every tensor that travels must be there; those frozen in the code, kept
    at the site or counting may be, and are taken then: where there are any, each site must read the file, too. Numbers are
    cast to the model's type.

    Args:
        path: The file.
        model: The model as its seed made it.
        other_head: A head (the last layer) that is missing, or made for other classes, is left as it stands.

    Raises:
        PlanError: With every fault: no readable file, no safetensors, tensors that are missing, unknown, of another shape,
            or not finite.

    Guarantees:
        None by itself: the weights are as private as what they were trained on. Only a model of public data, or one that was
        released under a claim of its own, leaves this run's claim as it is.
    """
    data = _bytes(path, model)
    try:
        found = safetensors.torch.load(data)
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise PlanError.of(_WHO, needs=f"a safetensors file at {path}", got=str(error),
                           hint="Write it with safetensors.torch.save_file(model.state_dict(), path)") from None  # fmt: skip
    if (
        "vector" in found
    ):  # a finished run's model.safetensors: the vector as a whole, then each parameter under a prefix
        found = {name.removeprefix(_RUN): value for name, value in found.items() if name.startswith(_RUN)}
    mine = model.module.state_dict()
    head = {name for name in mine if name.rpartition(".")[0] == head_layer(model.module)}
    needed = {segment.name for segment in model.segments}
    left_out: set[str] = set()
    # A model that is nothing but a head would start from none of the file: then the head has to fit.
    if other_head and needed - head and any(not _fits(found.get(name), mine[name]) for name in head):
        left_out = head
    needed -= left_out
    faults = [
        Problem(_WHO, *fault)
        for name in dict.fromkeys([*mine, *found])
        if name not in left_out and (fault := _fault(name, found.get(name), mine.get(name), name in needed)) is not None
    ]
    if len(faults) > _MOST_FAULTS:  # a file made for another model may lack, and bring, thousands
        rest = f"{len(faults) - _MOST_FAULTS} more that do not"
        faults[_MOST_FAULTS:] = [
            Problem(_WHO, "tensors that fit the model", rest, "Name the model that these weights are of")
        ]
    if faults:
        raise PlanError(faults)
    with torch.no_grad():
        for name, value in found.items():
            if name not in left_out:
                mine[name].copy_(value)
    return Initial(hashlib.sha256(data).hexdigest(), tuple(name for name in mine if name in left_out))


def _bytes(path: Path, model: FlatModel) -> bytes:
    most = _SLACK + 8 * sum(tensor.numel() for tensor in model.module.state_dict().values())
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # a pipe would never answer, a device never end
            got = "a directory" if stat.S_ISDIR(found.st_mode) else "a pipe, socket or device"
        elif found.st_size <= most:
            return path.read_bytes()
        else:
            got = f"{found.st_size:,} bytes"
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        got = (error.strerror if isinstance(error, OSError) else None) or str(error)
    raise PlanError.of(_WHO, needs=f"a readable file of at most {most:,} bytes at {path}", got=got,
                       hint="A relative path starts at the plan's folder")  # fmt: skip


def _fits(theirs: Tensor | None, mine: Tensor) -> bool:
    return theirs is not None and theirs.shape == mine.shape


def _fault(name: str, theirs: Tensor | None, mine: Tensor | None, needed: bool) -> tuple[str, str, str] | None:
    """Return what is needed, what came and what to do; None if all is well."""
    if mine is None:
        return "no tensor that the model lacks", repr(name), "Name the model that these weights are of"
    if theirs is None:
        return (f"tensor {name!r} of shape {tuple(mine.shape)}", "none", "Export the whole model") if needed else None
    if theirs.shape != mine.shape:
        return f"tensor {name!r} of shape {tuple(mine.shape)}", f"shape {tuple(theirs.shape)}", "Name the same model"
    if theirs.is_floating_point() != mine.is_floating_point():
        return f"tensor {name!r} of a type like {mine.dtype}", str(theirs.dtype), "Export the weights themselves"
    if not torch.isfinite(theirs.to(mine.dtype)).all():
        return f"finite numbers in tensor {name!r}", "NaN or infinity", "Train it again"
    return None
