"""The coordinator's state between rounds, and its bytes in the journal."""

import json
from dataclasses import dataclass, field

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from consilia.core.canonical import Json
from consilia.core.errors import StoreError
from consilia.core.update import Bytes, Vector

AFRESH = -1  # no phase: the server optimizer starts anew in the next round


@dataclass
class TrainingState:
    """All that the next round needs.

    Attributes:
        model: Global model, shape (d,).
        control: SCAFFOLD's global control variate, shape (d,), or None.
        moments: The server optimizer's state.
        round: Last round decided (counted or skipped).
        counted: site -> last round in which its answer counted.
        phase: Index of the phase of the last round; the server optimizer starts afresh in the next one.
        charges: site -> for each phase, rounds in which it may have charged its ledger.
        evaluations: Charged evaluations asked for.
        tail: Sum of the models of the second half, or their moving average, shape (d,).
        tail_count: How many models are in it.
        best: Best model so far with its score and round, where metrics allow it.
        stale: Evaluations since the best.
        bytes_up, bytes_down, seconds: Totals.
        pending: Record of a round whose model is written down but not yet scored, or None (noise at the server).
        good: Last model that the stop-loss let pass, where the plan has one; `good_score` is its accuracy and `good_counted`
            what `counted` was then.
        stopped: Why training ended before the last round, or None.
        skipped: Rounds that did not count.
    """

    model: Vector
    control: Vector | None = None
    moments: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    round: int = 0
    phase: int = 0
    counted: dict[str, int] = field(default_factory=dict)
    charges: dict[str, list[int]] = field(default_factory=dict)
    evaluations: int = 0
    tail: NDArray[np.float64] | None = None
    tail_count: int = 0
    best: Vector | None = None
    best_score: float | None = None
    best_round: int = 0
    stale: int = 0
    good: Vector | None = None
    good_score: float | None = None
    good_counted: dict[str, int] = field(default_factory=dict)
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: float = 0.0
    pending: dict[str, Json] | None = None
    stopped: str | None = None
    skipped: int = 0


_PLAIN = (
    "round", "phase", "counted", "charges", "evaluations", "tail_count", "best_score", "best_round", "stale", "good_score",
    "good_counted", "bytes_up", "bytes_down", "seconds", "pending", "stopped", "skipped",
)  # fmt: skip
_KINDS = {4: "<f4", 8: "<f8"}


def to_pieces(state: TrainingState) -> list[Bytes]:
    """Serialise as safetensors; plain values ride in its metadata. The pieces are views of the state's own arrays."""
    tensors: dict[str, NDArray[np.floating]] = {"model": state.model}
    tensors |= {f"moment.{name}": value for name, value in state.moments.items()}
    for name in ("control", "tail", "best", "good"):
        value = getattr(state, name)
        if value is not None:
            tensors[name] = value
    plain = {name: getattr(state, name) for name in _PLAIN}
    header: dict[str, Json] = {"__metadata__": {"state": json.dumps(plain, sort_keys=True)}}
    parts, at = [], 0
    for name, value in tensors.items():
        kind = np.dtype(_KINDS[value.dtype.itemsize])
        parts.append(np.ascontiguousarray(value, kind).data.cast("B"))
        header[name] = {
            "dtype": f"F{8 * kind.itemsize}",
            "shape": [*value.shape],
            "data_offsets": [at, at + value.nbytes],
        }
        at += value.nbytes
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    return [len(raw).to_bytes(8, "little") + raw, *parts]


def from_bytes(data: bytes) -> TrainingState:
    """Read back what `to_pieces` wrote.

    Raises:
        StoreError: If the bytes are not such a state.
    """
    try:
        tensors = safetensors.numpy.load(data)
        size = int.from_bytes(data[:8], "little")
        plain = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["state"])
        moments = {key.removeprefix("moment."): tensors[key] for key in tensors if key.startswith("moment.")}
        return TrainingState(
            model=tensors["model"], control=tensors.get("control"), moments=moments, tail=tensors.get("tail"),
            best=tensors.get("best"), good=tensors.get("good"), **{name: plain[name] for name in _PLAIN if name in plain},
        )  # fmt: skip
    except (KeyError, ValueError, TypeError, safetensors.SafetensorError) as error:
        raise StoreError.of(
            "the journal",
            needs="the state of the last round",
            got=f"bytes that are none ({type(error).__name__})",
            hint="Restore the run's folder from a copy",
        ) from None
