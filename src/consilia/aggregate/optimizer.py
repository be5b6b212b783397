"""What the coordinator does with the averaged update: x += rate x direction(update)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consilia.core.update import Vector

Moments = dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class ServerOptimizer:
    """SGD, momentum, Adagrad, Adam or Yogi on the coordinator.

    m <- beta m + u (momentum); m <- beta1 m + (1 - beta1) u (adagrad with beta1 = 0, adam, yogi);
    v <- v + u^2 (adagrad), beta2 v + (1 - beta2) u^2 (adam), v - (1 - beta2) u^2 sign(v - u^2) (yogi); v starts at tau^2;
    x <- x + rate m / (sqrt(v) + tau). There is no bias correction: v starts at tau^2 instead of 0, so none is due.

    Source:
        Reddi et al. (2021), Adaptive Federated Optimization, algorithm 2. Post-processing of what arrived: costs no privacy.
    """

    kind: Literal["sgd", "momentum", "adagrad", "adam", "yogi"]
    rate: float
    momentum: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def init(self, dim: int) -> Moments:
        """Return the state before the first step."""
        if self.kind == "sgd":
            return {}
        if self.kind == "momentum":
            return {"m": np.zeros(dim)}
        return {"m": np.zeros(dim), "v": np.full(dim, self.tau**2)}

    def step(self, model: Vector, update: NDArray[np.floating], state: Moments) -> tuple[Vector, Moments]:
        """Return the next model, shape (d,) float32, and the next state; the model may overflow to infinity."""
        with np.errstate(over="ignore", invalid="ignore"):  # the caller refuses a model that is not finite
            return self._step(model, update, state)

    def _step(self, model: Vector, update: NDArray[np.floating], state: Moments) -> tuple[Vector, Moments]:
        if self.kind == "sgd":
            moved = self.rate * update
            moved += model
            return moved.astype(np.float32), {}
        if self.kind == "momentum":
            m = self.momentum * state["m"] + update
            return (model + self.rate * m).astype(np.float32), {"m": m}
        beta1 = 0.0 if self.kind == "adagrad" else self.momentum
        m = beta1 * state["m"] + (1 - beta1) * update
        square = update * update
        v = state["v"]
        if self.kind == "adagrad":
            v = v + square
        elif self.kind == "adam":
            v = self.beta2 * v + (1 - self.beta2) * square
        else:
            v = v - (1 - self.beta2) * square * np.sign(v - square)
        return (model + self.rate * m / (np.sqrt(v) + self.tau)).astype(np.float32), {"m": m, "v": v}
