"""The resulting model in a run's folder, bound to the result in the journal by the digest of its file."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from consilia.core.canonical import Json, digest_bytes
from consilia.core.errors import StoreError
from consilia.core.spec import Segment
from consilia.core.update import Vector

MODEL = "model.safetensors"
DIGEST = "model_sha256"  # where the result names the digest
_PREFIX = "parameter."


def to_file(vector: Vector, segments: tuple[Segment, ...]) -> bytes:
    """Serialise a model: the whole vector, and each parameter by its name and in its shape."""
    tensors, start = {"vector": vector}, 0
    for segment in segments:
        tensors[_PREFIX + segment.name] = vector[start : start + segment.size].reshape(segment.shape)
        start += segment.size
    return bytes(safetensors.numpy.save(tensors))


def result_vector(folder: Path, result: Mapping[str, Json]) -> Vector:
    """Return the model of a finished run, shape (d,).

    Raises:
        StoreError: If the file is missing, or is not the one that the result speaks of.
    """
    return _read(folder, result)["vector"]


def result_parameters(folder: Path, result: Mapping[str, Json]) -> dict[str, NDArray[np.float32]]:
    """Return the shared parameters of a finished run by name.

    Raises:
        StoreError: As `result_vector`.
    """
    tensors = _read(folder, result)
    return {name.removeprefix(_PREFIX): tensor for name, tensor in tensors.items() if name.startswith(_PREFIX)}


def _read(folder: Path, result: Mapping[str, Json]) -> dict[str, NDArray[np.float32]]:
    path = folder / MODEL
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _other(path, error.strerror or "an error") from None
    # A privacy card is about one model: another one in its place would be certified for nothing.
    if digest_bytes(data) != result.get(DIGEST):
        raise _other(path, "another file")
    tensors: dict[str, NDArray[np.float32]] = safetensors.numpy.load(data)
    return tensors


def _other(path: Path, got: str) -> StoreError:
    return StoreError.of(f"model {path}", needs="the model that the run's result speaks of", got=got,
                         hint="Restore the run's folder from a copy")  # fmt: skip
