"""Averages of the models of a run: smoother than its last model, and free, being computed from released models."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilia.core.update import Vector


@dataclass(frozen=True)
class Ema:
    """Exponential moving average of the model, a <- b a + (1 - b) x, with b = min(decay, (1 + t) / (10 + t)).

    The t-th model counts for more while t is small: with a decay near 1 the average would otherwise stay at the first models
    for 1 / (1 - decay) rounds. The first model is the average so far. Post-processing of models that are released anyway: it
    costs no privacy.

    Attributes:
        decay: Largest weight of the past, in [0, 1).

    Source:
        Polyak and Juditsky (1992), Acceleration of stochastic approximation by averaging. De et al. (2022), Unlocking
        high-accuracy differentially private image classification through scale (EMA of the parameters under DP; the warm-up
        of the decay).
    """

    decay: float

    def update(self, average: NDArray[np.float64] | None, model: Vector, updates: int) -> NDArray[np.float64]:
        """Return the average with one more model.

        Args:
            average: The average so far, shape (d,); None before the first model.
            model: The new model, shape (d,).
            updates: t: how often an average was updated before; 0 at the first model.

        Returns:
            The next average, in place of the one so far, shape (d,), in double precision: at a decay of .9999 float32 would
            drop most of each model.
        """
        if average is None:
            return model.astype(np.float64)
        past = min(self.decay, (1 + updates) / (10 + updates))
        average *= past
        average += (1 - past) * model
        return average
