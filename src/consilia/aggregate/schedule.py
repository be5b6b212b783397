"""How the learning rate changes over a run: by the number of the round, so that it depends on no data."""

import math
from typing import Literal

Schedule = Literal["constant", "cosine"]


def rate_factor(schedule: Schedule, warmup: int, round: int, rounds: int) -> float:
    """Return what the learning rate of a round is multiplied by, in (0, 1].

    Over the first rounds it rises in equal steps, round / (warmup + 1), so that the first round after them is the first at
    the full rate. From there "constant" stays, and "cosine" falls along half a cosine that would reach zero one round after
    the last: no round is spent at rate zero.

    Args:
        schedule: What follows the warm-up.
        warmup: Rounds of the warm-up, fewer than `rounds`; 0 for none.
        round: Number of the round, 1 to `rounds`.
        rounds: Rounds of the run.

    Source:
        Loshchilov and Hutter (2017), SGDR, equation 5, without restarts. Goyal et al. (2017), Accurate, large minibatch SGD,
        section 2.2 (gradual warm-up).
    """
    if round <= warmup:
        return round / (warmup + 1)
    if schedule == "constant":
        return 1.0
    return 0.5 * (1.0 + math.cos(math.pi * (round - warmup - 1) / (rounds - warmup)))
