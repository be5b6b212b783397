"""Dividing one table among simulated sites, with public randomness: who holds which row is no secret."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consilia.core.errors import PlanError, Problem
from consilia.core.randomness import SharedSeed
from consilia.data.patients import Patients
from consilia.data.table import Index, Table

Kind = Literal["natural", "iid", "dirichlet", "one-label", "quantity-skew"]


def assign(
    table: Table,
    kind: Kind,
    *,
    count: int | None = None,
    alpha: float | None = None,
    sizes: Sequence[int] | None = None,
    one_label_sites: int = 1,
    seed: SharedSeed,
) -> dict[str, Index]:
    """Return the rows of each site, in rising order: site -> positions in `table`.

    Where the table names patients, all rows of a patient come to one site, and shares are shares of patients (each counts
    with its first row's label). No row is given twice. No row is lost, except where `sizes` adds up to fewer rows than
    there are. No site is empty.

    Args:
        table: The rows to divide.
        kind: natural: by `table.sites`. iid: equal shares of a random order. dirichlet: each class is divided
            by its own draw of shares, more unequal as `alpha` falls. one-label: the first `one_label_sites`
            sites hold rows of one label each (site k the k-th class, taken round), the others share the rest.
            quantity-skew: random rows, sizes as given or in proportion to k^-alpha.
        count: Number of sites; not for natural. Simulated sites are called site-01, site-02, ...
        alpha: dirichlet: concentration. quantity-skew: exponent.
        sizes: quantity-skew: rows of each site, instead of alpha.
        one_label_sites: one-label: fewer than `count`.
        seed: The run's public seed.

    Raises:
        PlanError: If the table cannot be divided so.

    Source:
        Dirichlet division by class: Hsu, Qi, Brown (2019), Measuring the effects of non-identical data
        distribution, section 3.
    """
    if sizes is not None and count is None:
        count = len(sizes)
    problems = _problems(table, kind, count, alpha, sizes, one_label_sites)
    if problems:
        raise PlanError(problems)
    if kind == "natural":
        return _natural(table)
    if table.patients is not None:
        return _by_patient(
            table, kind, count=count, alpha=alpha, sizes=sizes, one_label_sites=one_label_sites, seed=seed
        )
    assert count is not None  # noqa: S101  (_problems has seen to it; told to the type checker)
    generator = seed.derive("partition", kind).generator()
    if kind == "iid":
        parts = list(np.array_split(generator.permutation(len(table)), count))
    elif kind == "dirichlet":
        assert alpha is not None  # noqa: S101
        parts = _dirichlet(table.labels, count, alpha, generator)
    elif kind == "one-label":
        parts = _one_label(table, count, one_label_sites, generator)
    else:
        wanted = list(sizes) if sizes is not None else _power_law(len(table), count, float(alpha or 0))
        ends = np.cumsum(wanted)
        parts = np.split(generator.permutation(len(table)), ends)[:count]
    width = max(2, len(str(count)))
    return {f"site-{k + 1:0{width}d}": np.sort(part).astype(np.int64) for k, part in enumerate(parts)}


def _by_patient(
    table: Table, kind: Kind, *, count: int | None, alpha: float | None, sizes: Sequence[int] | None, one_label_sites: int,
    seed: SharedSeed,
) -> dict[str, Index]:  # fmt: skip
    patients = Patients.of(table)
    first = replace(table.take(patients.order[patients.starts[:-1]]), patients=None)
    places = assign(first, kind, count=count, alpha=alpha, sizes=sizes, one_label_sites=one_label_sites, seed=seed)
    return {site: np.sort(patients.order[patients.rows(chosen)]) for site, chosen in places.items()}


def _problems(
    table: Table,
    kind: Kind,
    count: int | None,
    alpha: float | None,
    sizes: Sequence[int] | None,
    one_label_sites: int,
) -> list[Problem]:
    found: list[Problem] = []
    rows = len(table)
    if kind == "natural":
        if table.sites is None:
            hint = 'Name data.site_column, or choose another partition such as "iid"'
            found.append(Problem('partition "natural"', "a table that names each row's site", "none", hint))
        return found
    if count is None or not 1 <= count <= rows:
        got = "none" if count is None else str(count)
        found.append(Problem("plan key sites.count", f"a number of sites from 1 to {rows} (rows)", got, "Set it"))
        return found
    if kind == "dirichlet" and not (alpha is not None and alpha > 0):
        found.append(Problem("plan key sites.alpha", "a number above 0", str(alpha), "0.1 is very uneven, 100 even"))
    if kind == "one-label" and not 1 <= one_label_sites < count:
        needs = f"from 1 to {count - 1}: fewer than sites.count"
        hint = "At least one site takes the remaining labels"
        found.append(Problem("plan key sites.one_label_sites", needs, str(one_label_sites), hint))
    if kind == "quantity-skew":
        if sizes is not None:
            if len(sizes) != count or min(sizes) < 1 or sum(sizes) > rows:
                needs = f"{count} sizes of at least 1 that add up to at most {rows} (rows)"
                found.append(Problem("plan key sites.sizes", needs, str(list(sizes)), "Change the sizes"))
        elif not (alpha is not None and alpha > 0):
            found.append(Problem("plan key sites.alpha", "a number above 0, or sites.sizes", str(alpha), "Set one"))
    return found


def _natural(table: Table) -> dict[str, Index]:
    assert table.sites is not None  # noqa: S101
    names, codes = np.unique(table.sites, return_inverse=True)
    return {str(name): np.flatnonzero(codes == k).astype(np.int64) for k, name in enumerate(names)}


def _dirichlet(labels: NDArray[np.int64], count: int, alpha: float, generator: np.random.Generator) -> list[Index]:
    pieces: list[list[Index]] = [[] for _ in range(count)]
    for label in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == label))
        shares = generator.dirichlet(np.full(count, alpha))
        # A tiny alpha can underflow to shares of zero everywhere; then one site takes the class.
        if not np.isclose(shares.sum(), 1.0):
            shares = np.eye(count)[generator.integers(count)]
        ends = np.rint(np.cumsum(shares)[:-1] * len(rows)).astype(np.int64)
        for piece, part in zip(pieces, np.split(rows, ends), strict=True):
            piece.append(part)
    return _none_empty([np.concatenate(piece) for piece in pieces])


def _none_empty(parts: list[Index]) -> list[Index]:
    # A site without rows could not take part at all: it gets one row of the largest site.
    for k in range(len(parts)):
        if len(parts[k]) == 0:
            largest = int(np.argmax([len(part) for part in parts]))
            parts[k], parts[largest] = parts[largest][-1:], parts[largest][:-1]
    return parts


def _one_label(table: Table, count: int, single: int, generator: np.random.Generator) -> list[Index]:
    order = generator.permutation(len(table))
    present = [k for k in range(len(table.classes)) if np.any(table.labels == k)]
    share = len(table) // count
    free = np.ones(len(table), dtype=np.bool_)
    parts: list[Index] = []
    for site in range(single):
        label = present[site % len(present)]
        mine = order[(table.labels[order] == label) & free[order]][:share]
        free[mine] = False
        parts.append(mine)
    # A fresh order: in the old one the labels already taken from stand behind the others.
    parts += list(np.array_split(generator.permutation(np.flatnonzero(free)), count - single))
    return _none_empty(parts)


def _power_law(rows: int, count: int, exponent: float) -> list[int]:
    # One row each first, the rest in proportion; what rounding leaves goes to the largest remainders.
    shares = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    exact = (rows - count) * shares / shares.sum()
    whole = np.floor(exact).astype(np.int64)
    rest = rows - count - int(whole.sum())
    whole[np.argsort(whole - exact, kind="stable")[:rest]] += 1
    return [int(size) + 1 for size in whole]
