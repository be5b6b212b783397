"""What noise scaled for the largest contribution means for a unit that contributes less."""

import math

from consilia.core.errors import PlanError


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
