"""A module whose tensors live in one flat buffer: an update is one operation, a vector one copy.

Layout of the buffer: [local trainable | shared trainable | shared running statistics]. The first two are what
an optimizer moves, the last two are the vector that travels: each is one contiguous slice. The head is the last of the
shared trainable, so that a run may train it alone, or all but it: again one slice.
"""

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from consilia.core.errors import PlanError, Problem, ProtocolError, StoreError
from consilia.core.spec import Segment
from consilia.core.update import Vector
from consilia.learning.layers import random_kind

LocalLayers = Literal["none", "norm", "head"]
Part = Literal["all", "head", "backbone"]
_NORMS = (_NormBase, nn.GroupNorm, nn.LayerNorm)


class FlatModel:
    """A model as a vector.

    Parameters that are frozen when it is built, and buffers that are no floats, are constants of the model's code: they
    never travel. "Trainable" is below what `train_only` last chose; at first all.

    Attributes:
        module: The model; its parameters and shared float buffers are views into one tensor.
        segments: Names and shapes of the shared tensors, in the order of the vector; the same for every part.
        parameters: The trainable tensors by name, local ones first.
        trainable: Values of the trainable tensors, shape (p,).
        grad: Their gradient, shape (p,); every parameter's `.grad` is a view into it.
        shared: Values of the shared trainable tensors, a slice of `trainable`.
        shared_grad: Their gradient, a slice of `grad`.
        span: Where `shared` stands in the vector.
        trains: Which part of the model is trained.
        local: Values of the trainable tensors kept at the site, a slice of `trainable`.
        local_grad: Their gradient.
        batch_statistics: True if a layer normalises over the batch.
        stochastic: True if a layer draws at random while training.
    """

    def __init__(self, module: nn.Module, local: LocalLayers = "none") -> None:
        faults = _faults(module)
        if faults:
            raise PlanError(faults)
        self.module = module
        kept = _local_names(module, local)
        named = {name: p for name, p in module.named_parameters() if p.requires_grad}
        at_site = {name: p for name, p in named.items() if name in kept}
        travelling = {name: p for name, p in named.items() if name not in kept}
        persistent = module.state_dict(keep_vars=True).keys()
        buffers = {name: b for name, b in module.named_buffers() if name in persistent}
        statistics = {name: b for name, b in buffers.items() if b.is_floating_point() and name not in kept}
        self._all, self._local_layers = {**at_site, **travelling}, local
        self.segments = tuple(
            Segment(name, tuple(tensor.shape)) for name, tensor in {**travelling, **statistics}.items()
        )
        if not self.segments:
            raise PlanError.of("the model", needs="a layer that is shared", got=f'local_layers = "{local}"',
                               hint="Keep fewer layers at the site")  # fmt: skip
        self._at_site = {**at_site, **{name: b for name, b in buffers.items() if name not in statistics}}
        first = next(iter(named.values()))
        p_local, p_shared = _size(at_site), _size(travelling)
        storage = torch.empty(p_local + p_shared + _size(statistics), dtype=first.dtype, device=first.device)
        self._values, self._p_local = storage[: p_local + p_shared], p_local
        self._grad = torch.zeros_like(self._values)
        self._vector = storage[p_local:]
        # On the CPU a vector goes in and out by one NumPy copy, without a tensor being made.
        self._host = self._vector.numpy() if storage.device.type == "cpu" else None
        position = 0
        for parameter in self._all.values():
            end = position + parameter.numel()
            view = storage[position:end].view(parameter.shape)
            view.copy_(parameter.data)
            parameter.data = view
            parameter.grad = self._grad[position:end].view(parameter.shape)
            position = end
        for name, buffer in statistics.items():
            end = position + buffer.numel()
            view = storage[position:end].view(buffer.shape)
            view.copy_(buffer)
            owner, _, leaf = name.rpartition(".")
            module.get_submodule(owner)._buffers[leaf] = view
            position = end
        layers = list(module.modules())
        self.batch_statistics = any(isinstance(layer, _BatchNorm) for layer in layers)
        self._keeps = bool(statistics) or any(isinstance(la, _NormBase) and la.track_running_stats for la in layers)
        self.stochastic = any(map(random_kind, layers))
        self.trains: Part = "all"
        self._choose(0, p_local + p_shared)

    @property
    def dim(self) -> int:
        """Length of the vector, d."""
        return self._vector.numel()

    def part(self, part: Part) -> slice:
        """Return where a part of the model stands in the vector.

        The head is what `head_layer` names; the backbone is what comes before. "all" is the whole vector, with running
        statistics.

        Raises:
            PlanError: If the model has no such part, or keeps running statistics, which belong to neither.
        """
        if part == "all":
            return slice(0, self.dim)
        owner = head_layer(self.module)
        tensors = dict(self.module.get_submodule(owner).named_parameters(owner, recurse=False))
        head = {name: p for name, p in self._all.items() if name in tensors}
        shared = len(self._values) - self._p_local
        backbone = shared - _size(head)
        faults = [
            Problem(f'training part "{part}"', needs, got, hint)
            for sound, needs, got, hint in (
                (self._local_layers != "head", "a head that is shared", 'local_layers = "head"',
                 'Set training.local_layers to "none" or "norm"'),
                (not self._keeps, "a model without running statistics", "layers that keep some",
                 "Replace BatchNorm with GroupNorm"),
                (len(head) == len(tensors), f"layer {owner!r} to be trainable and used once",
                 "a tensor of it that is frozen or shared with another layer", 'Set train = "all"'),
                (backbone > 0, f"something to train before layer {owner!r}", "nothing", 'Set train = "all"'),
            )
            if not sound
        ]  # fmt: skip
        if faults:
            raise PlanError(faults)
        return slice(backbone, shared) if part == "head" else slice(0, backbone)

    def train_only(self, part: Part) -> None:
        """From now on train a part: all else is frozen, so that it does not move and meets neither clip nor noise.

        `parameters`, `trainable`, `grad`, `shared`, `shared_grad`, `local`, `local_grad` and `span` narrow to the part; the
        vector and its segments stay. Norms that stay at the site belong to the backbone.

        Raises:
            PlanError: As `part`.
        """
        at = self.part(part)
        self.trains = part
        begin = self._p_local + at.start if part == "head" else 0
        self._choose(begin, min(self._p_local + at.stop, len(self._values)))

    def _choose(self, begin: int, end: int) -> None:
        self.parameters, position = {}, 0
        for name, parameter in self._all.items():
            chosen = begin <= position < end
            parameter.requires_grad_(chosen)
            if chosen:
                self.parameters[name] = parameter
            position += parameter.numel()
        self.trainable, self.grad = self._values[begin:end], self._grad[begin:end]
        local = max(0, self._p_local - begin)
        self.local, self.shared = self.trainable[:local], self.trainable[local:]
        self.local_grad, self.shared_grad = self.grad[:local], self.grad[local:]
        self.span = slice(end - self._p_local - len(self.shared), end - self._p_local)

    def get(self) -> Vector:
        """Return a copy of the vector, shape (d,), float32."""
        values = self._host if self._host is not None else self._vector.cpu().numpy()
        return np.array(values, dtype=np.float32)

    def set(self, vector: Vector) -> None:
        """Take over a vector of shape (d,).

        Raises:
            ProtocolError: If it has another length.
        """
        if vector.shape != (self.dim,):
            raise ProtocolError.of(
                "the model", needs=f"a vector of shape ({self.dim},)", got=f"shape {vector.shape}",
                hint="The site and the coordinator must build the same model: compare their plan digests",
            )  # fmt: skip
        if self._host is not None:
            np.copyto(self._host, vector)
        else:
            self._vector.copy_(torch.from_numpy(np.array(vector)))

    def moved_from(self, start: Vector) -> Vector:
        """Return the vector minus `start`, shape (d,), float32."""
        values = self._host if self._host is not None else self._vector.cpu().numpy()
        moved: Vector = np.subtract(values, start, dtype=np.float32)
        return moved

    def local_state(self) -> dict[str, NDArray[np.generic]]:
        """Return copies of what stays at the site: local layers, and counters that are no floats."""
        return {name: np.array(t.detach().cpu().numpy()) for name, t in self._at_site.items()}

    def load_local(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take over what `local_state` returned.

        Raises:
            StoreError: If names or shapes differ from this model's.
        """
        mine = {name: tuple(tensor.shape) for name, tensor in self._at_site.items()}
        theirs = {name: tuple(array.shape) for name, array in state.items()}
        if mine != theirs:
            raise StoreError.of(
                "the site's local state", needs=f"tensors {mine}", got=theirs,
                hint="It was kept for another model; start the run anew",
            )  # fmt: skip
        with torch.no_grad():
            for name, array in state.items():
                self._at_site[name].copy_(torch.from_numpy(np.array(array)))

    def set_mode(self, *, training: bool) -> None:
        """Switch layers such as dropout between training and evaluation."""
        if self.module.training is not training:  # walking the modules costs more than a small step
            self.module.train(training)


def _size(tensors: dict[str, Tensor] | dict[str, nn.Parameter]) -> int:
    return sum(tensor.numel() for tensor in tensors.values())


def _faults(module: nn.Module) -> list[Problem]:
    trainable = [p for p in module.parameters() if p.requires_grad]
    if not any(p.numel() for p in trainable):
        return [Problem("the model", "a trainable parameter", "none", "Leave requires_grad on somewhere")]
    floats = [*trainable, *(b for b in module.buffers() if b.is_floating_point())]
    kinds = {(str(t.dtype), str(t.device)) for t in floats}
    if len(kinds) > 1 or not trainable[0].is_floating_point():
        return [Problem("the model", "tensors of one floating-point type on one device",
                        ", ".join(sorted(" on ".join(kind) for kind in kinds)), "Cast it with .to()")]  # fmt: skip
    return []


def head_layer(module: nn.Module) -> str:
    """Return the name of the last layer that has parameters, in the order in which the model's code names its layers."""
    owners: list[str] = [name for name, layer in module.named_modules() if any(True for _ in layer.parameters(False))]
    return owners[-1]


def _local_names(module: nn.Module, local: LocalLayers) -> frozenset[str]:
    if local == "norm":
        owners = [name for name, layer in module.named_modules() if isinstance(layer, _NORMS)]
    elif local == "head":
        owners = [head_layer(module)]
    else:
        owners = []
    return frozenset(
        f"{owner}.{name}" if owner else name for owner in owners for name in module.get_submodule(owner).state_dict()
    )
