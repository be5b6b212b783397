"""What the holder of a table should know before training; nothing here stops a run.

Computed from the rows, so for the site's own screen: not for the coordinator, not for a published page.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from consilia.data.table import Table

CORRELATED: Final = 0.95  # |Pearson correlation| with one class from which a column may be the answer in disguise
RARE: Final = 0.05  # share of rows below which a class is called rare
_SHOWN: Final = 5


def advise(table: Table) -> list[str]:
    """Return one sentence for each of: repeated rows, odd columns, uneven classes, patients at several sites."""
    if len(table) == 0:
        return []
    return [*_repeats(table), *_columns(table), *_classes(table), *_patients(table)]


def _repeats(table: Table) -> Iterator[str]:
    flat = np.ascontiguousarray(table.features).reshape(len(table), -1)
    repeats = len(table) - len({row.tobytes() for row in flat})
    if repeats:
        yield f"{repeats} of {len(table)} rows repeat the features of another row; copies may stand on both sides of the split"


def _columns(table: Table) -> Iterator[str]:
    if not table.columns:  # a constant pixel or a pixel that tells the class is no news
        return
    values = table.features.astype(np.float64)
    spread = values.std(axis=0)
    constant = [name for name, width in zip(table.columns, spread, strict=True) if width == 0]
    if constant:
        yield f"constant columns teach nothing: {_list(constant)}"
    centred = (values - values.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    strongest = np.zeros(len(table.columns))
    for label in np.unique(table.labels):
        member = (table.labels == label).astype(np.float64)
        if 0 < member.mean() < 1:
            standard = (member - member.mean()) / member.std()
            strongest = np.maximum(strongest, np.abs(standard @ centred) / len(table))
    telling = [name for name, r in zip(table.columns, strongest, strict=True) if r > CORRELATED]
    if telling:
        yield f"columns that nearly give the label away: {_list(telling)}; are they known before the outcome?"


def _classes(table: Table) -> Iterator[str]:
    shares = np.bincount(table.labels, minlength=len(table.classes)) / len(table)
    absent = [name for name, share in zip(table.classes, shares, strict=True) if share == 0]
    if absent:
        yield f"classes without a row: {_list(absent)}"
    rare = [name for name, share in zip(table.classes, shares, strict=True) if 0 < share < RARE]
    if rare:
        yield f"classes with under {RARE:.0%} of the rows: {_list(rare)}; look at more than the accuracy"


def _patients(table: Table) -> Iterator[str]:
    if table.patients is None or table.sites is None:
        return
    pairs = set(zip(table.patients.tolist(), table.sites.tolist(), strict=True))
    shared = len(pairs) - len({patient for patient, _ in pairs})
    if shared:
        yield "some patients have rows at several sites: what they lose adds up over the sites"


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more
