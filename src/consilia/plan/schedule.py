"""Client sampling, drawn once from the public seed: who is asked in which round.

The schedule is public, so it buys no amplification; it only limits how often a site takes part, and exactly that
number is charged.
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from consilia.core.randomness import SharedSeed
from consilia.plan.schema import AggregationSection

Schedule = tuple[tuple[str, ...], ...]

# Largest share of a whole turn that chance may move a site up or down the queue. Below 1, so that a site that is a
# whole turn ahead of another is never asked before it.
_JITTER = 0.999


def cohort_size(rule: AggregationSection, sites: int) -> int | None:
    """Return how many sites a round asks, or None where that varies (poisson); where rounds wait for no one, how many it adds."""
    if rule.mode != "synchronous":
        return min(rule.ready or math.ceil(sites / 2), sites)
    match rule.selection:
        case "all":
            return sites
        case "count" | "tilted":
            return min(rule.count or sites, sites)
        case "fraction":
            return max(1, int((rule.fraction or 1.0) * sites + 0.5))
        case "poisson":
            return None


def most_added(rule: AggregationSection, asked: Schedule) -> int:
    """Return the most sites that a round of this schedule adds."""
    most = max(map(len, asked), default=0)
    return most if rule.mode == "synchronous" else cohort_size(rule, most) or 0


def inclusions(rule: AggregationSection, counts: Mapping[str, int]) -> dict[str, float]:
    """Return for each site the share of rounds it is asked in on average, in (0, 1].

    They add up to the cohort's size. Tilted: in proportion to count^-tilt, where a share above 1 becomes 1 and the
    rest is divided again.
    """
    size = cohort_size(rule, len(counts))
    if size is None:
        return dict.fromkeys(counts, rule.fraction or 1.0)
    if rule.selection != "tilted":
        return dict.fromkeys(counts, size / len(counts))
    found: dict[str, float] = {}
    pull = {site: float(count) ** -rule.tilt for site, count in counts.items()}
    while pull:
        left = size - len(found)
        total = sum(pull.values())
        full = [site for site, value in pull.items() if left * value >= total * (1 - 1e-12)]
        if not full:
            return found | {site: left * value / total for site, value in pull.items()}
        for site in full:
            found[site] = 1.0
            del pull[site]
    return found


def schedule(rule: AggregationSection, counts: Mapping[str, int], rounds: int, seed: SharedSeed) -> Schedule:
    """Return for each round the names of the sites asked, in order of name; a poisson round may ask none.

    Where rounds wait for no one these are all sites: who is ready in a round is not known beforehand.

    Args:
        rule: The plan's client sampling.
        counts: Registered rows of each site.
        rounds: Number of rounds, T.
        seed: The run's public seed.

    Guarantees:
        With m of N sites a round (count, fraction), each site is asked at most ceil(m T / N) times.
    """
    names = sorted(counts)
    if rule.selection == "all":
        return (tuple(names),) * rounds
    share = inclusions(rule, counts)
    pi = np.array([share[name] for name in names])
    rng = seed.derive("client sampling").generator()
    size = cohort_size(rule, len(names))
    picks = _independent(pi, rounds, rng) if size is None else _balanced(pi, size, rounds, rng)
    return tuple(tuple(names[i] for i in np.flatnonzero(row)) for row in picks)


def _independent(pi: NDArray[np.float64], rounds: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    return np.asarray(rng.random((rounds, len(pi))) < pi)


def _balanced(pi: NDArray[np.float64], size: int, rounds: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Ask each round the `size` sites furthest behind their share, in an order that chance jitters.

    With equal shares a site one turn ahead is never asked before one behind, so turns differ by at most 1.
    """
    picks = np.zeros((rounds, len(pi)), dtype=np.bool_)
    behind = np.zeros(len(pi))
    for row in picks:
        behind += pi
        key = behind + _JITTER * rng.random(len(pi))
        row[np.argsort(-key, kind="stable")[:size]] = True
        behind -= row
    return picks
