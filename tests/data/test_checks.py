"""Faults that make a table unusable, and advice that does not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from consilia.data.advice import advise
from consilia.data.builtin import heart
from consilia.data.checks import check_table
from consilia.data.table import Table


def table(**changes: Any) -> Table:
    rng = np.random.default_rng(0)
    made = Table(
        features=rng.normal(size=(100, 3)).astype(np.float32),
        labels=np.arange(100) % 2,
        classes=("no", "yes"),
        ids=np.arange(100).astype(np.str_),
        sites=None,
        patients=None,
        official_test=None,
        name="made",
        columns=("u", "v", "w"),
    )
    return replace(made, **changes)


def changed(row: int, column: int, value: float) -> np.ndarray[Any, Any]:
    features = table().features.copy()
    features[row, column] = value
    return features


def test_a_sound_table_has_no_faults() -> None:
    assert check_table(table()) == []
    assert check_table(heart.load()) == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"features": changed(3, 1, np.nan)}, "needs finite features; got 1 rows"),
        ({"features": changed(3, 1, -np.inf)}, "needs finite features; got 1 rows"),
        ({"features": np.zeros((100, 0), np.float32), "columns": ()}, "needs at least one feature"),
        ({"labels": np.zeros(100, dtype=np.int64)}, "needs rows of at least two classes; got one"),
        ({"labels": np.arange(100) % 3}, "needs labels from 0 to 1; got 33 rows outside"),
        ({"labels": -(np.arange(100) % 2)}, "needs labels from 0 to 1; got 50 rows outside"),
        ({"classes": ("no", "no")}, "needs different names for the classes"),
        ({"ids": np.array(["a"] * 100)}, "needs a different id for every row; got 99 repeats"),
    ],
)
def test_one_fault(changes: dict[str, Any], says: str) -> None:
    problems = check_table(table(**changes))
    assert len(problems) == 1
    assert says in str(problems[0])


def test_an_empty_table() -> None:
    assert "needs at least one row" in str(check_table(table().take(np.empty(0, dtype=np.int64)))[0])


def test_all_faults_at_once() -> None:
    spoilt = table(features=changed(0, 0, np.nan), classes=("no",), ids=np.array(["a"] * 100))
    assert len(check_table(spoilt)) == 4


def test_no_advice_on_a_plain_table() -> None:
    assert advise(table()) == []
    assert advise(table().take(np.empty(0, dtype=np.int64))) == []


def test_advice() -> None:
    features = table().features.copy()
    features[:, 1] = 0.5
    features[:, 2] = table().labels * 2.0 - 1
    features[7] = features[5]
    said = "\n".join(
        advise(
            table(
                features=features,
                classes=("no", "yes", "maybe"),
                patients=np.array([f"p{k // 2}" for k in range(100)]),
                sites=np.array(["A" if k != 1 else "B" for k in range(100)]),
            )
        )
    )
    assert "1 of 100 rows repeat" in said
    assert "constant columns teach nothing: 'v'" in said
    assert "nearly give the label away: 'w'" in said
    assert "classes without a row: 'maybe'" in said
    assert "patients have rows at several sites" in said
    assert len(said.splitlines()) == 5


def test_rare_classes() -> None:
    labels = np.zeros(100, dtype=np.int64)
    labels[:3] = 1
    assert any("under 5% of the rows: 'yes'" in line for line in advise(table(labels=labels)))
