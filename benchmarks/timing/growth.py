"""Whether something grows with time: a slope that outliers do not move, with an interval."""

from collections.abc import Sequence

from scipy.stats import theilslopes


def growth(places: Sequence[float], values: Sequence[float], per: float) -> dict[str, float]:
    """Return the slope of values over places, and its 95 % interval, as what they grow by in so many places.

    Args:
        places: Where each value was seen, rising: numbers of rounds.
        values: What was seen.
        per: The unit of the answer: 100 for growth in 100 rounds.

    Source:
        Theil (1950) and Sen (1968): the median of the slopes of all pairs; its interval is Kendall's.
    """
    found = theilslopes(list(values), list(places), alpha=0.95)
    return {
        "slope": per * float(found.slope),
        "lower": per * float(found.low_slope),
        "upper": per * float(found.high_slope),
    }


def last_two_thirds(samples: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    """Return the samples after the first third, in which caches fill and memory finds its level."""
    return list(samples[len(samples) // 3 :])
