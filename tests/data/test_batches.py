"""Poisson batches have the law the accountant charges for; fixed batches cover every row once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from consilia.core.randomness import SecretRng
from consilia.data.batches import fixed_batches, poisson_batch


def secret(label: int = 0) -> SecretRng:
    return SecretRng(bytes(32)).derive(label)


@given(count=st.integers(0, 200), q=st.floats(0.001, 1), cap=st.integers(0, 50), label=st.integers(0, 99))
def test_a_poisson_batch_holds_distinct_rows_up_to_the_cap(count: int, q: float, cap: int, label: int) -> None:
    batch = poisson_batch(count, q, cap, secret(label))
    assert batch.dtype == np.int64
    assert len(batch) <= min(cap, count)
    assert len(set(batch.tolist())) == len(batch)
    assert ((batch >= 0) & (batch < count)).all()


def p_value_of_sizes(drawn_q: float, stated_q: float) -> float:
    rng, count, draws = secret(1), 40, 4000
    sizes = [len(poisson_batch(count, drawn_q, count, rng)) for _ in range(draws)]
    edges = [0, 6, 7, 8, 9, 10, 11, 12, 13, 14, count + 1]
    seen = np.histogram(sizes, bins=edges)[0]
    law = np.diff(stats.binom.cdf(np.array(edges) - 1, count, stated_q))
    return float(stats.chisquare(seen, law * draws).pvalue)


def test_sizes_are_binomial_and_a_wrong_rate_is_noticed() -> None:
    assert p_value_of_sizes(0.25, 0.25) > 1e-3
    assert p_value_of_sizes(0.25, 0.25 / 1.2) < 1e-6
    assert p_value_of_sizes(0.25 / 1.2, 0.25) < 1e-6


def test_rows_join_alike_and_independently() -> None:
    rng, draws, count, q = secret(2), 6000, 6, 0.3
    member = np.zeros((draws, count))
    for row in member:
        row[poisson_batch(count, q, count, rng)] = 1
    np.testing.assert_allclose(member.mean(axis=0), q, atol=5 * np.sqrt(q * (1 - q) / draws))
    pairs = member.T @ member / draws
    np.testing.assert_allclose(pairs[np.triu_indices(count, 1)], q * q, atol=5 * np.sqrt(q * q / draws))


def test_the_cap_drops_every_row_alike() -> None:
    # At q = 1 each row stays with probability cap / count; keeping the first rows instead would fail here.
    rng, draws, count, cap = secret(3), 4000, 10, 3
    kept = np.zeros(count)
    for _ in range(draws):
        kept[poisson_batch(count, 1.0, cap, rng)] += 1
    share = cap / count
    np.testing.assert_allclose(kept / draws, share, atol=5 * np.sqrt(share * (1 - share) / draws))


def test_the_order_is_secret_and_fresh() -> None:
    rng = secret(4)
    one, two = poisson_batch(50, 1.0, 50, rng), poisson_batch(50, 1.0, 50, rng)
    assert not np.array_equal(one, two)
    assert not np.array_equal(one, np.arange(50))
    assert not np.array_equal(one, poisson_batch(50, 1.0, 50, secret(5)))


@given(count=st.integers(0, 100), size=st.integers(1, 40))
def test_fixed_batches_cover_every_row_once(count: int, size: int) -> None:
    batches = list(fixed_batches(count, size, np.random.default_rng(0)))
    assert len(batches) == -(-count // size)
    assert all(len(batch) == size for batch in batches[:-1])
    assert sorted(row for batch in batches for row in batch.tolist()) == list(range(count))


def test_each_epoch_has_its_own_order() -> None:
    generator = np.random.default_rng(0)
    one, two = (np.concatenate(list(fixed_batches(50, 7, generator))) for _ in range(2))
    assert not np.array_equal(one, two)
    with pytest.raises(StopIteration):
        next(fixed_batches(0, 7, generator))
