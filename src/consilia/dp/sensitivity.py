"""How far one unit can move what is released: read from the clipper and the public weights, never typed in."""

import math
from collections.abc import Sequence

from consilia.core.errors import PlanError, Problem


def of_weighted_mean(clip_norm: float, weights: Sequence[float], denominator: float) -> float:
    """Return the l2 sensitivity of sum_i w_i x_i / W to one site's contribution: C max(w) / W.

    Args:
        clip_norm: Bound C on the l2 norm of every contribution; non-finite contributions count as zero.
        weights: Public registered weights of every site that may take part, each at least 0.
        denominator: Public W, fixed before the round; not the sum of the weights that happened to arrive.

    Raises:
        PlanError: If a number has no meaning.

    Guarantees:
        Adding, removing or zeroing out one site's contribution moves the weighted mean by at most the value returned,
        whichever sites are missing. Replacing one by another moves it by at most twice the value.
        Proof: weights and W stay as they are, so the difference is w_i x_i / W, whose norm is at most w_i C / W.
    """
    problems = [
        Problem("the sensitivity of a weighted mean", needs, str(got), "Weights are public numbers of the plan")
        for needs, got, good in (
            ("a clip norm above 0", clip_norm, 0 < clip_norm < math.inf),
            ("a denominator above 0", denominator, 0 < denominator < math.inf),
            ("weights of at least 0, one or more", list(weights),
             bool(weights) and all(0 <= weight < math.inf for weight in weights)),
        )
        if not good
    ]  # fmt: skip
    if problems:
        raise PlanError(problems)
    return clip_norm * max(weights) / denominator


def effective_multiplier(noise_multiplier: float, *, own: float, largest: float) -> float:
    """Return the noise multiplier that a unit enjoys whose own contribution is bounded by less than the largest.

    The noise has standard deviation z * `largest`; a unit bounded by `own` sees z * `largest` / `own`.

    Args:
        noise_multiplier: z, relative to `largest`.
        own: The bound on this unit's contribution, at least 0 (0: it never takes part, so the multiplier is infinite).
        largest: The sensitivity that the noise was scaled for, above 0.

    Raises:
        PlanError: If `own` exceeds `largest`: then the noise was scaled for too little.
    """
    if not (0 <= own <= largest and 0 < largest < math.inf):
        raise PlanError.of(
            "the sensitivity of one unit",
            needs=f"a bound of at most {largest:g}, which the noise was scaled for",
            got=f"{own:g}",
            hint="Scale the noise for the largest contribution",
        )
    return math.inf if own == 0 else noise_multiplier * largest / own
