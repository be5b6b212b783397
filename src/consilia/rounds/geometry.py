"""Norms and directions of one round's updates, for the records."""

import math
from collections.abc import Mapping

import numpy as np

from consilia.core.canonical import Json
from consilia.core.update import Vector

MAX_PAIRS = 12  # beyond that many sites a table of pairs helps nobody, and costs n^2 d
_BLOCK = 1 << 16  # coordinates at a time


def norms(updates: Mapping[str, Vector]) -> dict[str, float]:
    """Return the l2 norm of each site's update as it arrived."""
    return {site: math.sqrt(_dot(vector, vector)) for site, vector in updates.items()}


def cosines(updates: Mapping[str, Vector], lengths: dict[str, float]) -> dict[str, Json]:
    """Return the mean cosine similarity over pairs of sites, and each pair for small cohorts.

    The mean over all pairs of n unit vectors u is (|sum u|^2 - n) / (n (n - 1)): linear in n.
    """
    names = sorted(site for site in updates if lengths[site] > 0)
    n = len(names)
    if n < 2:
        return {"mean": None, "pairs": {}}
    if n <= MAX_PAIRS:
        inner = {}
        for place, a in enumerate(names):  # two at a time: those of a whole cohort may take as much memory again
            one = updates[a]
            inner.update({(a, b): _inner(one, updates[b]) for b in names[place + 1 :]})
        pairs: dict[str, Json] = {}
        values = [value / lengths[a] / lengths[b] for (a, b), value in inner.items()]
        pairs.update((f"{a}|{b}", value) for (a, b), value in zip(inner, values, strict=True))
        return {"mean": math.fsum(values) / len(values), "pairs": pairs}
    total = np.zeros(updates[names[0]].size)
    for name in names:
        update = updates[name]
        for start in range(0, total.size, _BLOCK):
            part = slice(start, start + _BLOCK)
            total[part] += update[part] / lengths[name]
    return {"mean": (float(total @ total) - n) / (n * (n - 1)), "pairs": {}}


def _inner(a: Vector, b: Vector) -> float:
    blocks = (slice(start, start + _BLOCK) for start in range(0, a.size, _BLOCK))
    return sum(_dot(a[part], b[part]) for part in blocks)


def _dot(a: Vector, b: Vector) -> float:
    # In float32, for speed; a vector that overflows there is finite all the same, and the journal takes no infinity.
    with np.errstate(over="ignore", invalid="ignore"):
        value = float(a @ b)
    return value if math.isfinite(value) else float(a.astype(np.float64) @ b.astype(np.float64))
