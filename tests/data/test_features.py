from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilia.core.errors import DataError
from consilia.data.features.apply import apply
from consilia.data.features.normalise import normalise_groups
from consilia.data.features.scattering import scatter
from consilia.data.table import Table

Features = Literal["raw", "scattering"]
Normalise = Literal["none", "group"]


def images(rows: int = 6, shape: tuple[int, ...] = (1, 12, 16), seed: int = 0) -> Table:
    rng = np.random.default_rng(seed)
    return Table(
        features=rng.uniform(-1, 1, size=(rows, *shape)).astype(np.float32), labels=np.arange(rows) % 2,
        classes=("0", "1"), ids=np.arange(rows).astype(np.str_), sites=None, patients=None, official_test=None,
        name="drawn",
    )  # fmt: skip


@given(
    seed=st.integers(0, 2**32 - 1),
    groups=st.sampled_from([1, 2, 3, 6]),
    scale=st.floats(0.1, 1e4),
    shift=st.floats(-9, 9),
)
def test_each_group_has_mean_0_and_variance_1(seed: int, groups: int, scale: float, shift: float) -> None:
    rng = np.random.default_rng(seed)
    before = (scale * (rng.normal(size=(3, 6, 4, 5)) + shift)).astype(np.float32)
    after = before.copy()
    normalise_groups(after, groups)
    grouped, exact = after.reshape(3, groups, -1), before.reshape(3, groups, -1).astype(np.float64)
    assert np.allclose(grouped.mean(axis=2), 0, atol=1e-4)
    assert grouped.var(axis=2).max() < 1 + 1e-4
    assert grouped.var(axis=2).min() > 0.98  # the floor counts a little where the scale is 0.1
    exact -= exact.mean(axis=2, keepdims=True)
    assert np.allclose(grouped, exact / np.sqrt(exact.var(axis=2, keepdims=True) + 1e-5), atol=1e-4)


def test_a_constant_group_becomes_zero() -> None:
    features = np.full((2, 3, 4, 4), 0.3, np.float32)
    features[:, 0] += np.arange(16, dtype=np.float32).reshape(4, 4)
    normalise_groups(features, 3)
    assert np.abs(features[:, 1:]).max() < 1e-2
    assert np.abs(features[:, 0]).max() > 1


@pytest.mark.parametrize("features", ["raw", "scattering"])
@pytest.mark.parametrize("normalise", ["none", "group"])
def test_a_record_s_features_depend_on_no_other_record(features: Features, normalise: Normalise) -> None:
    table = images()
    whole = apply(table, features, normalise).features
    other = replace(images(seed=1), features=np.concatenate([table.features[:1], 5 * images(seed=1).features[1:]]))
    assert np.array_equal(apply(other, features, normalise).features[0], whole[0])
    for row in range(len(table)):
        assert np.array_equal(apply(table.take(np.array([row])), features, normalise).features[0], whole[row])


def test_scattering_normalises_three_paths_together() -> None:
    table = images(shape=(2, 12, 16))
    plain, normal = (apply(table, "scattering", normalise).features for normalise in ("none", "group"))
    assert plain.shape == normal.shape == (6, 162, 3, 4)
    assert np.array_equal(plain, scatter(table.features))
    first = normal.reshape(6, 54, -1)
    assert np.allclose(first.mean(axis=2), 0, atol=1e-5)
    assert first.var(axis=2).min() > 0.2
    assert first.var(axis=2).max() <= 1 + 1e-4


def test_raw_images_are_normalised_channel_by_channel_in_a_copy() -> None:
    table = images(shape=(3, 5, 5))
    before = table.features.copy()
    after = apply(table, "raw", "group")
    assert np.array_equal(table.features, before)
    assert after.features.shape == before.shape
    assert np.allclose(after.features.mean(axis=(2, 3)), 0, atol=1e-5)


def test_rows_left_as_they_are_are_the_same_table() -> None:
    table = images(shape=(7,))
    assert apply(table, "raw", "none") is table


def test_features_keep_the_fingerprint_of_their_rows_and_other_rows_do_not() -> None:
    table = images()
    featured = apply(table, "scattering", "group")
    assert featured.fingerprint() == table.fingerprint()
    assert featured.copy().fingerprint() == table.fingerprint()
    changed = replace(table, features=table.features + np.float32(1e-3))
    assert apply(changed, "scattering", "group").fingerprint() != table.fingerprint()
    assert featured.take(np.array([0, 1])).fingerprint() != table.fingerprint()


@pytest.mark.parametrize(
    ("shape", "features", "normalise", "words"),
    [
        ((7,), "scattering", "none", 'data.features = "scattering" needs images'),
        ((7,), "raw", "group", 'data.normalise = "group" needs images'),
        ((1, 7, 28), "scattering", "group", "at least 8 pixels a side"),
    ],
)
def test_rows_that_cannot_be_featured_are_named(
    shape: tuple[int, ...], features: Features, normalise: Normalise, words: str
) -> None:
    with pytest.raises(DataError, match=words):
        apply(images(shape=shape), features, normalise)


def test_no_rows_have_features_of_the_same_shape() -> None:
    assert apply(images(0), "scattering", "group").features.shape == (0, 81, 3, 4)
