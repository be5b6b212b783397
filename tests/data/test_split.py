"""Held-out rows: stable under a hash, exact in number, patients whole."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilia.core.errors import PlanError
from consilia.core.randomness import SharedSeed
from consilia.data.split import Rule, keep_first, split
from consilia.data.table import Table

SEED = SharedSeed.of(3)


def table(rows: int, patients: list[int] | None = None) -> Table:
    return Table(
        features=np.zeros((rows, 1), dtype=np.float32),
        labels=np.arange(rows) % 2,
        classes=("0", "1"),
        ids=np.array([f"row-{k}" for k in range(rows)], dtype=np.str_),
        sites=None,
        patients=None if patients is None else np.array([f"p{k}" for k in patients], dtype=np.str_),
        official_test=None,
        name="made",
    )


@given(
    patients=st.lists(st.integers(0, 12), max_size=60),
    rule=st.sampled_from(["hash", "exact"]),
    fraction=st.floats(0, 0.99),
    seed=st.integers(0, 99),
)
def test_every_row_once_and_patients_whole(patients: list[int], rule: Rule, fraction: float, seed: int) -> None:
    train, test = split(table(len(patients), patients), rule, fraction, SharedSeed.of(seed))
    assert sorted([*train.tolist(), *test.tolist()]) == list(range(len(patients)))
    assert not {patients[k] for k in train} & {patients[k] for k in test}
    assert (np.diff(train) > 0).all()
    assert (np.diff(test) > 0).all()


@given(rows=st.integers(1, 400), percent=st.integers(0, 99))
def test_exact_is_the_ceiling_in_decimal(rows: int, percent: int) -> None:
    _, test = split(table(rows), "exact", percent / 100, SEED)
    assert len(test) == -(-percent * rows // 100)


@pytest.mark.parametrize(("fraction", "tested"), [(0.07, 7), (0.14, 14), (0.28, 28), (0.55, 55)])
def test_exact_does_not_round_in_floats(fraction: float, tested: int) -> None:
    assert fraction * 100 > tested  # why floats would take one row too many
    assert len(split(table(100), "exact", fraction, SEED)[1]) == tested


def test_exact_comes_close_with_patients() -> None:
    patients = [k // 5 for k in range(100)]
    _, test = split(table(100, patients), "exact", 0.34, SEED)
    assert len(test) == 30


@given(st.integers(1, 80), st.integers(0, 50))
def test_a_row_more_never_moves_another_under_the_hash(rows: int, seed: int) -> None:
    shared = SharedSeed.of(seed)
    before = set(split(table(rows), "hash", 0.3, shared)[1].tolist())
    after = set(split(table(rows + 1), "hash", 0.3, shared)[1].tolist())
    assert after - {rows} == before


def test_the_hash_follows_the_row_not_its_place() -> None:
    whole = table(500)
    order = np.random.default_rng(0).permutation(500)
    tested = {whole.ids[k] for k in split(whole, "hash", 0.3, SEED)[1]}
    shuffled = whole.take(order)
    assert {shuffled.ids[k] for k in split(shuffled, "hash", 0.3, SEED)[1]} == tested


def test_the_hash_holds_out_the_fraction_and_depends_on_the_seed() -> None:
    counts = [len(split(table(2000), "hash", 0.3, SharedSeed.of(seed))[1]) for seed in range(10)]
    assert np.mean(counts) == pytest.approx(600, abs=4 * np.sqrt(420 / 10))
    assert len(set(counts)) > 1
    assert len(split(table(50), "hash", 0.0, SEED)[1]) == 0


def test_official_rows() -> None:
    marked = replace(table(4), official_test=np.array([False, True, True, False]))
    train, test = split(marked, "official", 0.0, SEED)
    assert (train.tolist(), test.tolist()) == ([0, 3], [1, 2])
    with pytest.raises(PlanError, match="needs a source that marks its own test rows"):
        split(table(4), "official", 0.25, SEED)


def test_keep_first() -> None:
    index = np.array([2, 3, 5, 7, 11])
    few = keep_first(index, 3, SEED)
    assert len(few) == 3
    assert set(few.tolist()) <= set(index.tolist())
    assert set(keep_first(index, 2, SEED).tolist()) < set(few.tolist())  # nested: curves over n compare like with like
    assert keep_first(index, None, SEED).tolist() == index.tolist()
    assert keep_first(index, 9, SEED).tolist() == index.tolist()
