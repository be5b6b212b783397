"""Masks are the keystream, word for word, in every ring; what is added is taken away again; all 256 bits of a key count."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from consilia.core.ring import BITS, Ring
from consilia.crypto.prg import Keystream, Mask, apply_masks

KEY = bytes(range(32))


def drawn(key: bytes, bits: int, size: int) -> np.ndarray[tuple[int], np.dtype[np.unsignedinteger]]:
    words = np.zeros(size, Ring(bits).dtype)
    apply_masks(words, [Mask(key)])
    return words


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("size", [1, 1000, 40_000])
def test_a_mask_is_the_keystream(bits: int, size: int) -> None:
    words = drawn(KEY, bits, size)
    stream, left, raw = Keystream(KEY), words.nbytes, b""
    while left:
        room = bytearray(min(left, 4096) + 16)
        stream.fill(memoryview(room), min(left, 4096))
        raw += room[:-16]
        left -= len(room) - 16
    assert words.tobytes() == raw


@given(st.sampled_from(BITS), st.lists(st.booleans(), max_size=140), st.integers(0, 2**32))
def test_masks_that_are_added_and_taken_away_leave_the_vector(bits: int, signs: list[bool], seed: int) -> None:
    ring = Ring(bits)
    vector = np.random.default_rng(seed).integers(0, 2**16, 50).astype(ring.dtype)
    masks = [Mask(bytes([i]) * 32, add) for i, add in enumerate(signs)]
    words = vector.copy()
    apply_masks(words, masks)
    if masks:
        assert (words != vector).any()
    apply_masks(words, [Mask(mask.key, not mask.add) for mask in masks])
    np.testing.assert_array_equal(words, vector)


def test_each_of_256_key_bits_changes_half_of_the_mask() -> None:
    plain = drawn(KEY, 32, 200)
    for bit in range(256):
        key = bytearray(KEY)
        key[bit // 8] ^= 1 << bit % 8
        changed = np.unpackbits((plain ^ drawn(bytes(key), 32, 200)).view(np.uint8)).sum()
        assert abs(int(changed) - 3200) < 6 * 40  # 6400 fair bits: standard deviation 40


@pytest.mark.parametrize("bits", [16, 24])
def test_masks_cover_the_whole_ring_evenly(bits: int) -> None:
    words = drawn(KEY, bits, 1 << 20).astype(np.int64) & ((1 << bits) - 1)
    counts = np.bincount(words >> (bits - 8), minlength=256)  # the top byte
    low = np.bincount(words & 255, minlength=256)
    for seen in (counts, low):
        statistic = ((seen - 4096) ** 2 / 4096).sum()
        assert chi2.sf(statistic, 255) > 1e-6
    if bits == 16:
        assert np.bincount(words, minlength=1 << 16).min() > 0  # 0 and 65535 among them; missing one: e^-16 each


def test_a_mask_never_shows_its_key() -> None:
    assert KEY.hex() not in repr(Mask(KEY))
    assert repr(KEY) not in repr(Mask(KEY))


@pytest.mark.parametrize("size", [0, 4, 16, 24, 31, 33])
def test_a_short_key_is_none(size: int) -> None:
    with pytest.raises(ValueError, match="key"):
        apply_masks(np.zeros(1, np.uint32), [Mask(bytes(size))])
