"""UCI Heart Disease, four centres: is a coronary artery narrowed by more than half?

740 of 920 rows: `slope`, `ca` and `thal` (mostly unmeasured outside Cleveland) are dropped, then every row
with an empty cell.

Source: Janosi, Steinbrunn, Pfisterer, Detrano (1989), Heart Disease, UCI Machine Learning Repository, doi
10.24432/C52P4X.
"""

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from consilia.data.builtin.reading import read_columns
from consilia.data.encode import category_codes, fill_one_hot, scale_to_range
from consilia.data.table import Table

CLASSES: Final = ("absence", "presence")

# Public clinical ranges, fixed before any row was seen: what a clinic would call plausible for an adult.
RANGES: Final = {
    "age": (20.0, 80.0),  # years
    "trestbps": (80.0, 200.0),  # mm Hg at rest
    "chol": (100.0, 400.0),  # mg/dl
    "thalach": (60.0, 220.0),  # beats a minute under exercise
    "oldpeak": (0.0, 6.0),  # mm of ST depression
}
# No living patient has a pressure or a cholesterol of 0: the source writes 0 for "not measured".
ZERO_IS_MISSING: Final = ("trestbps", "chol")
YES_NO: Final = {"sex": "Male", "fbs": "True", "exang": "True"}
CATEGORIES: Final = {
    "cp": ("typical angina", "atypical angina", "non-anginal", "asymptomatic"),
    "restecg": ("normal", "st-t abnormality", "lv hypertrophy"),
}


def load() -> Table:
    """Return the 740 complete rows: 16 features, sites by centre, ids as in the source.

    Features: five numbers in [-1, 1], an indicator of a missing `chol` (a third of the rows of two centres),
    three yes/no columns and two categories one-hot. Norms of rows: 1.5 to 2.8, median 2.1.
    """
    return _load().copy()


@lru_cache(maxsize=1)
def _load() -> Table:
    columns = read_columns("heart.csv.gz")
    used = (*RANGES, *YES_NO, *CATEGORIES)
    complete = [all(cells) for cells in zip(*(columns[name] for name in used), strict=True)]
    kept = {name: [cell for cell, keep in zip(columns[name], complete, strict=True) if keep] for name in columns}
    parts: dict[str, NDArray[np.float64]] = {}
    for name, (low, high) in RANGES.items():
        values = np.asarray(kept[name], dtype=np.float64)
        if name in ZERO_IS_MISSING:
            values[values == 0] = np.nan
        parts[name] = scale_to_range(values, low, high)
        if name == "chol":
            parts["chol missing"] = np.isnan(values).astype(np.float64)
    for name, yes in YES_NO.items():
        parts[f"{name}={yes}"] = np.asarray([cell == yes for cell in kept[name]], dtype=np.float64)
    blocks = [np.stack(list(parts.values()), axis=1).astype(np.float32)]
    names = list(parts)
    for name, values_of in CATEGORIES.items():
        block = np.zeros((len(kept[name]), len(values_of)), dtype=np.float32)
        codes = category_codes(kept[name], {value: k for k, value in enumerate(values_of)})
        fill_one_hot(block, np.asarray(codes, dtype=np.int64))
        blocks.append(block)
        names += [f"{name}={value}" for value in values_of]
    return Table(
        features=np.concatenate(blocks, axis=1),
        labels=np.asarray(kept["target"], dtype=np.int64),
        classes=CLASSES,
        ids=np.asarray(kept["id"], dtype=np.str_),
        sites=np.asarray(kept["centre"], dtype=np.str_),
        patients=None,
        official_test=None,
        name="heart",
        columns=tuple(names),
        notes=(
            "180 of 920 rows have an empty cell and are left out",
            "chol 0 and trestbps 0 count as missing",
        ),
    )
