"""Which rows are held out. All rows of a patient stay on one side."""

import hashlib
import math
from fractions import Fraction
from typing import Literal

import numpy as np

from consilia.core.errors import PlanError
from consilia.core.randomness import SharedSeed
from consilia.data.table import Index, Table, Text

Rule = Literal["official", "hash", "exact"]


def split(table: Table, rule: Rule, fraction: float, seed: SharedSeed) -> tuple[Index, Index]:
    """Return (training rows, test rows) as rising positions in `table`; together they are all rows.

    Args:
        table: The rows of one site.
        rule: official: the rows that the source marks. hash: each patient (or, without patients, each id) is
            tested when its own hash falls below `fraction`: adding or removing a row never moves another, so
            the split suits private data (a table without ids is numbered by row: there only appending is safe).
            exact: ceil(fraction x rows) rows, the first of a seeded order; whole patients are taken in that
            order while they fit. Who is tested then depends on the other rows: for benchmarks whose split is
            public.
        fraction: Share of rows held out, in [0, 1); not used by official.
        seed: The run's public seed.

    Raises:
        PlanError: If the source has no official split.
    """
    if rule == "official":
        if table.official_test is None:
            raise PlanError.of(
                'plan key data.split "official"',
                needs="a source that marks its own test rows",
                got=f"table {table.name!r} without marks",
                hint='Choose "hash"',
            )
        test = table.official_test
    else:
        units = table.ids if table.patients is None else table.patients
        seed = seed.derive("split", rule)
        test = _by_hash(units, fraction, seed) if rule == "hash" else _exact(units, fraction, seed)
    return np.flatnonzero(~test).astype(np.int64), np.flatnonzero(test).astype(np.int64)


def keep_first(index: Index, rows: int | None, seed: SharedSeed) -> Index:
    """Return the first `rows` positions of a seeded order of `index`, rising; all when `rows` is None."""
    if rows is None or rows >= len(index):
        return index
    order = seed.derive("train rows").generator().permutation(len(index))
    return np.sort(index[order[:rows]])


def _by_hash(units: Text, fraction: float, seed: SharedSeed) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    threshold = math.ceil(Fraction(repr(fraction)) * 2**64)
    chosen = [
        int.from_bytes(hashlib.blake2b(unit.encode(), key=seed.key, digest_size=8).digest(), "big") < threshold
        for unit in units.tolist()
    ]
    return np.asarray(chosen, dtype=np.bool_)


def _exact(units: Text, fraction: float, seed: SharedSeed) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    # Decimal arithmetic: in floats .07 x 100 exceeds 7, and its ceiling would be 8.
    wanted = math.ceil(Fraction(repr(fraction)) * len(units))
    names, first, unit_of_row, sizes = np.unique(units, return_index=True, return_inverse=True, return_counts=True)
    # Units in order of first appearance: the split must not depend on how ids happen to sort.
    appearance = np.argsort(first, kind="stable")
    tested = np.zeros(len(names), dtype=np.bool_)
    for unit in appearance[seed.generator().permutation(len(names))]:
        if sizes[unit] <= wanted:
            tested[unit] = True
            wanted -= int(sizes[unit])
    chosen: np.ndarray[tuple[int], np.dtype[np.bool_]] = tested[unit_of_row]
    return chosen
