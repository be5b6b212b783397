"""The trained weights in a run's folder, by the names of the model's parameters."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from consilia.core.errors import StoreError

_PREFIX = "parameter."


def read_weights(run: Path) -> dict[str, NDArray[np.float32]]:
    """Return the shared parameters of a finished run.

    Raises:
        StoreError: If the folder holds no such model.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = run / "model.safetensors"
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else "bytes that are none"
        raise StoreError.of(f"model {path}", needs="a safetensors file", got=reason,
                            hint="Restore the run's folder from a copy") from None  # fmt: skip
    return {name.removeprefix(_PREFIX): tensor for name, tensor in tensors.items() if name.startswith(_PREFIX)}
