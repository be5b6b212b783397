"""What the coordinator does with the averaged update: x += rate x direction(update)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consilia.core.finite import all_finite
from consilia.core.update import Vector
from consilia.dp.second_moment import SecondMomentNoise

Moments = dict[str, NDArray[np.float64]]
_BLOCK = 1 << 14  # coordinates at a time


@dataclass(frozen=True)
class ServerOptimizer:
    """SGD, momentum, Adagrad, Adam, Yogi or Adam corrected for noise on the coordinator.

    m <- beta m + u (momentum); m <- beta1 m + (1 - beta1) u (adagrad with beta1 = 0, adam, yogi);
    v <- v + u^2 (adagrad), beta2 v + (1 - beta2) u^2 (adam), v - (1 - beta2) u^2 sign(v - u^2) (yogi); v starts at tau^2;
    x <- x + rate m / (sqrt(v) + tau). There is no bias correction: v starts at tau^2 instead of 0, so none is due.
    dp-adam: m and v as adam's, but from zero and bias-corrected, and v without the share of the noise, at least its standard
    error (`SecondMomentNoise`). All of it is post-processing of what arrived and costs no privacy.

    Attributes:
        kind: Which of them.
        rate: The server's rate.
        momentum: beta of momentum, beta1 of the others.
        beta2: Of adam, yogi and dp-adam.
        tau: What the root of v is kept away from zero by.
        noise_variance: dp-adam: variance of the noise on each coordinate of the update, public; it may differ from round to
            round. An update that is minus a gradient carries the noise of that gradient: a square has no sign.

    Source:
        Reddi et al. (2021), Adaptive Federated Optimization, algorithm 2. dp-adam: Tang, Shpilevskiy and Lecuyer (2024),
        DP-AdamBC, algorithm 1.
    """

    kind: Literal["sgd", "momentum", "adagrad", "adam", "yogi", "dp-adam"]
    rate: float
    momentum: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3
    noise_variance: float = 0.0

    def init(self, dim: int) -> Moments:
        """Return the state before the first step."""
        if self.kind == "sgd":
            return {}
        if self.kind == "momentum":
            return {"m": np.zeros(dim)}
        if self.kind == "dp-adam":
            return {"m": np.zeros(dim), "v": np.zeros(dim), "noise": np.zeros(3)}
        return {"m": np.zeros(dim), "v": np.full(dim, self.tau**2)}

    def step(self, model: Vector, update: NDArray[np.floating], state: Moments) -> tuple[Vector, Moments]:
        """Return the next model, shape (d,) float32, and the next state; the model may overflow to infinity.

        Takes one model of memory: block by block, and the arrays of the state are brought forward in place. They stay as they
        are where the model is not finite.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # the caller refuses a model that is not finite
            noise = self._noise(state)
            moved = np.empty(model.size, np.float32)
            for part in _parts(model.size):
                moved[part] = self._moved(model[part], update[part], self._moments(update[part], state, part), noise)
            if not state or not all_finite(moved):
                return moved, state
            for part in _parts(model.size):
                for name, value in self._moments(update[part], state, part).items():
                    state[name][part] = value
            if noise is not None:
                state["noise"][:] = (noise.steps, noise.sum, noise.spread)
            return moved, state

    def _noise(self, state: Moments) -> SecondMomentNoise | None:
        if self.kind != "dp-adam":
            return None
        steps, total, spread = state["noise"]
        return SecondMomentNoise(int(steps), float(total), float(spread)).after(self.noise_variance, self.beta2)

    def _moments(self, update: NDArray[np.floating], state: Moments, part: slice) -> Moments:
        """Return the moments of a part after an update."""
        if self.kind == "sgd":
            return {}
        if self.kind == "momentum":
            return {"m": self.momentum * state["m"][part] + update}
        beta1 = 0.0 if self.kind == "adagrad" else self.momentum
        m, v, square = beta1 * state["m"][part] + (1 - beta1) * update, state["v"][part], update * update
        if self.kind == "adagrad":
            return {"m": m, "v": v + square}
        if self.kind == "yogi":
            return {"m": m, "v": v - (1 - self.beta2) * square * np.sign(v - square)}
        return {"m": m, "v": self.beta2 * v + (1 - self.beta2) * square}

    def _moved(
        self, model: Vector, update: NDArray[np.floating], after: Moments, noise: SecondMomentNoise | None
    ) -> NDArray[np.floating]:
        """Return a part of the next model from its moments after the update."""
        if self.kind == "sgd":
            return self.rate * update + model
        if self.kind == "momentum":
            return model + self.rate * after["m"]
        if noise is None:
            return model + self.rate * after["m"] / (np.sqrt(after["v"]) + self.tau)
        weight, mean, floor = noise.corrected(self.beta2)
        root = np.sqrt(np.maximum(after["v"] / weight - mean, floor)) + self.tau
        return model + self.rate * after["m"] / (1 - self.momentum**noise.steps) / root


def _parts(dim: int) -> Iterator[slice]:
    return (slice(start, start + _BLOCK) for start in range(0, dim, _BLOCK))
