"""What a site says about itself, read as what it may be: nothing in it can stop the coordinator."""

import math
import re

LARGEST = 1e15  # sums of so large numbers, times weights, stay far from infinity
MOST_ROWS = 10**9  # of one site
_HEAD = re.compile(r"[0-9a-f]{64}")


def number(value: object) -> float | None:
    """Return the number that a site claims; None if it is no number, or too large to add up."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LARGEST <= value <= LARGEST:
        return None  # NaN is within no bounds
    return float(value)


def rows(value: object) -> float | None:
    """Return the number of rows that a site claims; None if no site has so many, or so few."""
    count = number(value)
    return count if count is not None and 0 < count <= MOST_ROWS else None


def head(value: object) -> str | None:
    """Return the head that a site claims for its ledger; None if it is no hash: it is written down with every round."""
    return value if isinstance(value, str) and _HEAD.fullmatch(value) else None


def mean(values: list[tuple[float, float | None]]) -> float | None:
    """Return the mean of the values that are known, by their weights; None if none is.

    Args:
        values: (weight, value); weights are positive.
    """
    known = [(weight, value) for weight, value in values if value is not None]
    total = math.fsum(weight for weight, _ in known)
    return sum(weight * value for weight, value in known) / total if known else None
