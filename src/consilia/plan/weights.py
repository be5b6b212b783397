"""Weights in the average: public numbers from registered counts, never from a count taken during the run."""

import math
from collections.abc import Mapping

from consilia.plan.schedule import cohort_size, inclusions
from consilia.plan.schema import AggregationSection

MAX_CORRECTION = 4.0


def weights(rule: AggregationSection, counts: Mapping[str, int]) -> dict[str, float]:
    """Return each site's weight: n, n^alpha, 1 or min(n, cap), corrected for tilted client sampling.

    A site that is asked less often than uniform sampling would ask it counts for more when it is, by the factor
    (uniform share / its share), at most 4: one answer must not decide a round.

    Guarantees:
        The weights are a function of registered numbers alone, so they reveal nothing about the rows held.
    """
    plain = {site: _base(rule, count) for site, count in counts.items()}
    size = cohort_size(rule, len(counts))
    if rule.selection != "tilted" or size is None:
        return plain
    share = inclusions(rule, counts)
    uniform = size / len(counts)
    return {site: value * min(MAX_CORRECTION, uniform / share[site]) for site, value in plain.items()}


def _base(rule: AggregationSection, count: int) -> float:
    match rule.weights:
        case "n":
            return float(count)
        case "power":
            return math.pow(count, rule.alpha)
        case "uniform":
            return 1.0
        case "capped":
            return float(min(count, rule.cap or count))
