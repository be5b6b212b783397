"""Two kinds of randomness, and that draws follow the laws they claim."""

import copy
import pickle

import numpy as np
import pytest
from scipy import stats

from consilia.core.randomness import SecretRng, SharedSeed, normals


def test_labels_separate_streams() -> None:
    seed = SharedSeed.of(3)
    assert seed.derive("a", "bc").key != seed.derive("ab", "c").key
    assert seed.derive("a", 1).key == seed.derive("a", "1").key  # labels are text
    assert SharedSeed.of(3).key == seed.key != SharedSeed.of(4).key


def test_secret_streams_differ_and_do_not_repeat() -> None:
    rng = SecretRng(bytes(range(32)))
    first, second = rng.normal(1000), rng.normal(1000)
    assert not np.array_equal(first, second)
    assert not np.array_equal(rng.derive("a").normal(10), rng.derive("b").normal(10))
    with pytest.raises(ValueError, match="32 bytes"):
        SecretRng(b"short")


def test_normal_is_normal_and_the_test_has_power() -> None:
    x = SecretRng(bytes(range(32))).normal(200_001)
    assert stats.kstest(x, "norm").pvalue > 1e-3
    assert stats.kstest(x / 1.02, "norm").pvalue < 1e-3  # a scale wrong by 2 % is seen
    assert np.isfinite(x).all()
    assert abs(np.corrcoef(x[:100_000], x[100_000:200_000])[0, 1]) < 0.01


def test_pairs_of_normals_point_in_every_direction_alike() -> None:
    x = SecretRng(bytes(range(1, 33))).normal(200_000)
    first, second = x[:100_000], x[100_000:]  # the two coordinates of each pair
    angle = np.arctan2(second, first) / (2 * np.pi) + 0.5
    assert stats.kstest(angle, "uniform").pvalue > 1e-3
    assert stats.kstest((first**2 + second**2) / 2, "expon").pvalue > 1e-3
    assert abs(np.corrcoef(first**2, second**2)[0, 1]) < 0.02


@pytest.mark.parametrize("size", [0, 1, 2, 32_767, 32_768, 32_769, 65_541])
def test_every_size_is_filled(size: int) -> None:
    x = SecretRng(bytes(32)).normal(size)
    assert x.shape == (size,)
    assert len(np.unique(x)) == size


@pytest.mark.parametrize("word", [0x00, 0x7F, 0x80, 0xFF])
def test_the_outermost_uniforms_give_finite_normals(word: int) -> None:
    class Constant:
        def update(self, data: bytes) -> bytes:
            return bytes([word]) * len(data)

    rng = SecretRng(bytes(32))
    rng._stream = Constant()  # type: ignore[assignment]
    x = rng.normal(6)
    assert np.isfinite(x).all()
    assert np.abs(x).max() <= 8.7
    radius, angle = np.sqrt(-2 * np.log1p(-rng.uniform(1))), 2 * np.pi * (rng.uniform(1) - 0.5)
    np.testing.assert_allclose(x[[0, 5]], np.concatenate([radius * np.cos(angle), radius * np.sin(angle)]), atol=1e-14)


def test_uniform_is_uniform_on_the_half_open_interval() -> None:
    u = SecretRng(bytes(32)).uniform(200_000)
    assert u.min() >= 0.0
    assert u.max() < 1.0
    assert stats.kstest(u, "uniform").pvalue > 1e-3


def test_permutation_reaches_every_order() -> None:
    rng = SecretRng(bytes(range(32)))
    orders = {tuple(rng.permutation(4)) for _ in range(600)}
    assert len(orders) == 24


@pytest.mark.parametrize("size", [0, 1, 2, 7, 34, 1602, 2**15 + 3])
def test_normals_of_many_streams_are_each_streams_own(size: int) -> None:
    root = SecretRng(bytes(32))
    one, other = ([root.derive("site", i) for i in range(5)] for _ in range(2))
    for _ in range(2):  # the second draw tells whether the streams have moved alike
        np.testing.assert_allclose(normals(one, size), np.array([rng.normal(size) for rng in other]), rtol=1e-13)
    assert normals([], 3).shape == (0, 3)


@pytest.mark.parametrize("drawn", [0, 1, 15, 16, 17, 8 * 32_769])
def test_a_stream_goes_on_where_it_stood_in_another_process(drawn: int) -> None:
    here, whole = SecretRng(bytes(range(32))), SecretRng(bytes(range(32)))
    before = here.token(drawn)
    there = SecretRng.resumed(here.state())
    assert before + there.token(40) == whole.token(drawn + 40)
    assert np.array_equal(there.normal(7), whole.normal(7))
    assert there.derive("a").token(8) == whole.derive("a").token(8)
    here.move_to(there.state().position)
    assert here.token(33) == whole.token(33)


def test_a_stream_never_goes_back_and_never_travels_unasked() -> None:
    rng = SecretRng(bytes(range(32)))
    rng.uniform(10)
    with pytest.raises(ValueError, match="only moves forward"):
        rng.move_to(79)
    with pytest.raises(TypeError):
        copy.deepcopy(rng)
    with pytest.raises(TypeError):
        pickle.dumps(rng)
    assert "key" not in repr(rng.state())
