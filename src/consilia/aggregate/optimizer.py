"""What the coordinator does with the averaged update: x += rate x direction(update)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consilia.core.update import Vector
from consilia.dp.second_moment import SecondMomentNoise

Moments = dict[str, NDArray[np.float64]]


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
        if self.kind == "dp-adam":
            v = self.beta2 * v + (1 - self.beta2) * square
            return self._without_noise(model, m, v, state["noise"])
        if self.kind == "adagrad":
            v = v + square
        elif self.kind == "adam":
            v = self.beta2 * v + (1 - self.beta2) * square
        else:
            v = v - (1 - self.beta2) * square * np.sign(v - square)
        return (model + self.rate * m / (np.sqrt(v) + self.tau)).astype(np.float32), {"m": m, "v": v}

    def _without_noise(
        self, model: Vector, m: NDArray[np.float64], v: NDArray[np.float64], noise: NDArray[np.float64]
    ) -> tuple[Vector, Moments]:
        share = SecondMomentNoise(int(noise[0]), float(noise[1]), float(noise[2])).after(
            self.noise_variance, self.beta2
        )
        weight, mean, floor = share.corrected(self.beta2)
        root = np.sqrt(np.maximum(v / weight - mean, floor)) + self.tau
        moved = self.rate * m / (1 - self.momentum**share.steps) / root
        moments = {"m": m, "v": v, "noise": np.array([share.steps, share.sum, share.spread])}
        return (model + moved).astype(np.float32), moments
