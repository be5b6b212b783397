"""UCI Adult (census income): does a person earn more than 50,000 dollars a year?

All 48,842 rows with the official split; '?' is a category of its own. `fnlwgt`, the census bureau's sampling
weight, is dropped.

Source: Becker, Kohavi (1996), Adult, UCI Machine Learning Repository, doi 10.24432/C5XW20.
"""

from functools import lru_cache
from typing import Final

import numpy as np

from consilia.data.builtin.reading import read_columns
from consilia.data.encode import category_codes, fill_one_hot, scale_to_range
from consilia.data.table import Table

CLASSES: Final = ("<=50K", ">50K")

# The ranges of the census form's codes, from its public description.
RANGES: Final = {"age": (17.0, 90.0), "educational-num": (1.0, 16.0), "hours-per-week": (1.0, 99.0)}
# Largest codable amounts in dollars; log(1 + x) / log(1 + largest), so that "none" (9 rows of 10) stays 0.
LARGEST: Final = {"capital-gain": 99_999.0, "capital-loss": 4_356.0}
CATEGORIES: Final = {
    "workclass": (
        "Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov", "State-gov",
        "Without-pay",
        "Never-worked", "?",
    ),
    "education": (
        "Preschool", "1st-4th", "5th-6th", "7th-8th", "9th", "10th", "11th", "12th", "HS-grad",
        "Some-college",
        "Assoc-voc", "Assoc-acdm", "Bachelors", "Masters", "Prof-school", "Doctorate",
    ),
    "marital-status": (
        "Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed", "Married-spouse-absent",
        "Married-AF-spouse",
    ),
    "occupation": (
        "Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial", "Prof-specialty",
        "Handlers-cleaners", "Machine-op-inspct", "Adm-clerical", "Farming-fishing", "Transport-moving",
        "Priv-house-serv", "Protective-serv", "Armed-Forces", "?",
    ),
    "relationship": ("Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried"),
    "race": ("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black"),
    "gender": ("Male",),  # two values: one column, like the yes/no columns of the heart table
    "native-country": (
        "United-States", "Cambodia", "England", "Puerto-Rico", "Canada", "Germany",
        "Outlying-US(Guam-USVI-etc)",
        "India", "Japan", "Greece", "South", "China", "Cuba", "Iran", "Honduras", "Philippines",
        "Italy", "Poland",
        "Jamaica", "Vietnam", "Mexico", "Portugal", "Ireland", "France", "Dominican-Republic",
        "Laos", "Ecuador",
        "Taiwan", "Haiti", "Columbia", "Hungary", "Guatemala", "Nicaragua", "Scotland", "Thailand",
        "Yugoslavia",
        "El-Salvador", "Trinadad&Tobago", "Peru", "Hong", "Holand-Netherlands", "?",
    ),
}  # fmt: skip


def load() -> Table:
    """Return all 48,842 rows: 106 features; official_test marks 16,281 of them.

    Features: three numbers in [-1, 1], two in [0, 1], eight categories one-hot. Norms of rows: 2.6 to 3.4,
    median 2.9.
    """
    return _load().copy()


@lru_cache(maxsize=1)
def _load() -> Table:
    columns = read_columns("adult.csv.gz")
    rows = len(columns["income"])
    names = [*RANGES, *LARGEST]
    names += [f"{column}={value}" for column, values in CATEGORIES.items() for value in values]
    features = np.zeros((rows, len(names)), dtype=np.float32)
    at = 0
    for column, (low, high) in RANGES.items():
        features[:, at] = scale_to_range(np.asarray(columns[column]).astype(np.float64), low, high)
        at += 1
    for column, largest in LARGEST.items():
        amounts = np.asarray(columns[column]).astype(np.float64)
        features[:, at] = np.log1p(amounts) / np.log1p(largest)
        at += 1
    for column, values in CATEGORIES.items():
        codes = category_codes(columns[column], {value: k for k, value in enumerate(values)})
        fill_one_hot(features[:, at : at + len(values)], np.asarray(codes, dtype=np.int64))
        at += len(values)
    return Table(
        features=features,
        labels=np.asarray([cell == CLASSES[1] for cell in columns["income"]], dtype=np.int64),
        classes=CLASSES,
        ids=np.arange(1, rows + 1).astype(np.str_),
        sites=None,
        patients=None,
        official_test=np.asarray([cell == "False" for cell in columns["train"]], dtype=np.bool_),
        name="adult",
        columns=tuple(names),
        notes=("fnlwgt is left out", "'?' is a category of its own"),
    )
