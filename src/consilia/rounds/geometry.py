"""Norms and directions of one round's updates, for the records."""

import numpy as np
from numpy.typing import NDArray

from consilia.core.canonical import Json
from consilia.core.update import Vector

MAX_PAIRS = 12  # beyond that many sites a table of pairs helps nobody, and costs n^2 d


def norms(updates: dict[str, Vector]) -> dict[str, float]:
    """Return the l2 norm of each site's update as it arrived."""
    return {site: float(np.linalg.norm(vector)) for site, vector in updates.items()}


def cosines(updates: dict[str, Vector], lengths: dict[str, float]) -> dict[str, Json]:
    """Return the mean cosine similarity over pairs of sites, and each pair for small cohorts.

    The mean over all pairs of n unit vectors u is (|sum u|^2 - n) / (n (n - 1)): linear in n.
    """
    units = {site: vector / lengths[site] for site, vector in updates.items() if lengths[site] > 0}
    n = len(units)
    if n < 2:
        return {"mean": None, "pairs": {}}
    names = sorted(units)
    total: NDArray[np.float64] = np.asarray(np.sum([units[name] for name in names], axis=0, dtype=np.float64))
    mean = (float(total @ total) - n) / (n * (n - 1))
    pairs: dict[str, Json] = {}
    if n <= MAX_PAIRS:
        for i, a in enumerate(names):
            for b in names[i + 1 :]:
                pairs[f"{a}|{b}"] = float(units[a] @ units[b])
    return {"mean": mean, "pairs": pairs}
