"""Nothing lost, nothing doubled, no site empty; and each kind does what its name says."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilia.core.errors import PlanError
from consilia.core.randomness import SharedSeed
from consilia.data.partition import Kind, assign
from consilia.data.table import Table

SEED = SharedSeed.of(7)


def table(rows: int, classes: int = 3, sites: list[str] | None = None) -> Table:
    return Table(
        features=np.zeros((rows, 1), dtype=np.float32),
        labels=np.arange(rows) % classes,
        classes=tuple(str(k) for k in range(classes)),
        ids=np.arange(rows).astype(np.str_),
        sites=None if sites is None else np.array(sites),
        patients=None,
        official_test=None,
        name="made",
    )


@given(
    kind=st.sampled_from(["iid", "dirichlet", "one-label", "quantity-skew"]),
    rows=st.integers(1, 300),
    share=st.floats(0, 1),
    classes=st.integers(1, 5),
    alpha=st.sampled_from([1e-4, 0.1, 1.0, 100.0]),
    single=st.integers(1, 30),
    seed=st.integers(0, 1000),
)
def test_nothing_is_lost_or_doubled(
    kind: Kind, rows: int, share: float, classes: int, alpha: float, single: int, seed: int
) -> None:
    count = max(1, round(share * rows))
    if kind == "one-label" and single >= count:
        return
    parts = assign(
        table(rows, classes), kind, count=count, alpha=alpha, one_label_sites=single, seed=SharedSeed.of(seed)
    )
    assert len(parts) == count
    assert list(parts) == sorted(parts)
    assert all(len(part) >= 1 and (np.diff(part) > 0).all() and part.dtype == np.int64 for part in parts.values())
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(rows))


def test_the_seed_decides() -> None:
    def flat(seed: int) -> list[list[int]]:
        parts = assign(table(100), "dirichlet", count=4, alpha=0.5, seed=SharedSeed.of(seed))
        return [part.tolist() for part in parts.values()]

    assert flat(1) == flat(1)
    assert flat(1) != flat(2)


def test_natural_sites_keep_their_names() -> None:
    parts = assign(table(4, sites=["b", "a", "b", "c"]), "natural", seed=SEED)
    assert {name: part.tolist() for name, part in parts.items()} == {"a": [1], "b": [0, 2], "c": [3]}


def test_iid_shares_are_equal() -> None:
    parts = assign(table(1000, 2), "iid", count=3, seed=SEED)
    assert list(parts) == ["site-01", "site-02", "site-03"]
    assert sorted(len(part) for part in parts.values()) == [333, 333, 334]
    assert all(abs(np.mean(part % 2) - 0.5) < 0.1 for part in parts.values())
    assert not np.array_equal(parts["site-01"], np.arange(334))


def test_names_sort_as_they_count() -> None:
    assert list(assign(table(200), "iid", count=120, seed=SEED))[:2] == ["site-001", "site-002"]


def test_dirichlet_is_the_more_uneven_the_smaller_alpha() -> None:
    def spread(alpha: float) -> float:
        whole = table(9000)
        parts = assign(whole, "dirichlet", count=5, alpha=alpha, seed=SEED)
        shares = [np.bincount(whole.labels[part], minlength=3) / 3000 for part in parts.values()]
        return float(np.std(shares))

    assert spread(0.1) > 2 * spread(1.0) > 4 * spread(100.0)


def test_dirichlet_shares_have_the_stated_law() -> None:
    # One class, two sites: the first site's share is Beta(a, a), whose variance is 1 / (4 (2a + 1)).
    whole = table(2000, 1)
    for alpha in (0.5, 5.0):
        shares = [
            len(assign(whole, "dirichlet", count=2, alpha=alpha, seed=SharedSeed.of(k))["site-01"]) / 2000
            for k in range(300)
        ]
        assert np.var(shares) == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.25)


def test_one_label_sites_hold_one_label_each_and_the_rest_holds_all() -> None:
    whole = table(900)
    parts = assign(whole, "one-label", count=5, one_label_sites=2, seed=SEED)
    held = [sorted(set(whole.labels[part].tolist())) for part in parts.values()]
    assert held == [[0], [1], [0, 1, 2], [0, 1, 2], [0, 1, 2]]
    assert [len(part) for part in parts.values()] == [180] * 5
    for part in list(parts.values())[2:]:  # what is left: 120, 120 and 300 rows; a third of each, but for chance
        np.testing.assert_allclose(np.bincount(whole.labels[part]), [40, 40, 100], atol=25)


def test_quantity_skew_by_a_power_law_or_by_sizes() -> None:
    parts = assign(table(1003), "quantity-skew", count=4, alpha=1.0, seed=SEED)
    assert [len(part) for part in parts.values()] == [480, 241, 161, 121]
    parts = assign(table(1003), "quantity-skew", sizes=[900, 8], seed=SEED)
    assert [len(part) for part in parts.values()] == [900, 8]
    assert len(np.unique(np.concatenate(list(parts.values())))) == 908


@pytest.mark.parametrize(
    ("kind", "options", "key"),
    [
        ("natural", {}, "natural"),
        ("iid", {}, "sites.count"),
        ("iid", {"count": 0}, "sites.count"),
        ("iid", {"count": 11}, "sites.count"),
        ("dirichlet", {"count": 2}, "sites.alpha"),
        ("dirichlet", {"count": 2, "alpha": 0.0}, "sites.alpha"),
        ("one-label", {"count": 2, "one_label_sites": 2}, "sites.one_label_sites"),
        ("one-label", {"count": 1}, "sites.one_label_sites"),
        ("quantity-skew", {"count": 2}, "sites.alpha"),
        ("quantity-skew", {"count": 3, "sizes": [5, 5]}, "sites.sizes"),
        ("quantity-skew", {"sizes": [6, 5]}, "sites.sizes"),
        ("quantity-skew", {"sizes": [5, 0]}, "sites.sizes"),
        ("quantity-skew", {"sizes": []}, "sites.count"),
    ],
)
def test_what_cannot_be_divided_is_refused(kind: Kind, options: dict[str, Any], key: str) -> None:
    with pytest.raises(PlanError, match=key):
        assign(table(10), kind, seed=SEED, **options)
