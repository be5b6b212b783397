"""Means, their intervals, and Markdown tables from result files."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy.stats import t

from benchmarks.study import Json


@dataclass(frozen=True)
class Mean:
    """A mean over runs and the half width of its 95 % interval (Student's t over n runs)."""

    value: float
    half: float
    runs: int


def mean(values: Sequence[float]) -> Mean:
    """Return the mean of n values and its 95 % interval; the half width is NaN for a single value."""
    array = np.asarray(values, dtype=np.float64)
    n = len(array)
    half = float(t.ppf(0.975, n - 1) * array.std(ddof=1) / sqrt(n)) if n > 1 else float("nan")
    return Mean(float(array.mean()), half, n)


def percent(values: Sequence[float], digits: int = 2) -> str:
    """Return "84.61 ± 0.05", in percent."""
    found = mean(values)
    return f"{100 * found.value:.{digits}f} ± {100 * found.half:.{digits}f}"


def share(values: Sequence[float]) -> str:
    """Return ".785 ± .004"."""
    found = mean(values)
    return f"{found.value:.3f} ± {found.half:.3f}".replace("0.", ".")


def points(values: Sequence[float], digits: int = 2) -> str:
    """Return a signed difference in percentage points, "+0.31 ± 0.12"."""
    found = mean(values)
    return f"{100 * found.value:+.{digits}f} ± {100 * found.half:.{digits}f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def provenance(result: Json) -> str:
    """Return the line under a table: what made it, from which code, in how long."""
    made = result["made"]
    versions = ", ".join(f"{name} {number}" for name, number in made["versions"].items())
    changed = f", with changes in {len(made['changed_since'])} files" if made["changed_since"] else ""
    return (
        f"`{made['command']}` · commit `{made['commit'][:12]}`{changed} · {made['date']} · {made['seconds']:.0f} s on "
        f"{made['threads']} thread · {versions} · every plan key, seed and run: `results/{result['study']}.json`"
    )
