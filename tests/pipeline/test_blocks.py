"""Rounding in blocks: unbiased, within its scale, small, and never where it would break a guarantee."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from consilia.core.canonical import Json
from consilia.core.errors import IllegalChain, PlanError, ProtocolError
from consilia.core.randomness import SecretRng
from consilia.core.spec import Encoding, Segment, Unit, UpdateSpec
from consilia.core.update import Release, Vector
from consilia.core.wire import encode, pack_vector
from consilia.pipeline.blocks import BLOCK, Blocks
from consilia.pipeline.packing import Packing

SPEC = UpdateSpec((Segment("w", (6,)),))


def rng(number: int = 0) -> SecretRng:
    return SecretRng(number.to_bytes(32, "big"))


def through(vector: Vector, bits: int, number: int = 0) -> Vector:
    codec = Blocks(bits)
    return codec.unpack(codec.pack(vector, rng(number)), len(vector), who="a site")


def _bias(errors: np.ndarray, value: float) -> float:
    """Return the p-value of "the mean error is zero", given how whole numbers drawn for one value scatter."""
    up = float(value) % 1
    return float(2 * stats.norm.sf(abs(errors.mean()) / np.sqrt(up * (1 - up) / errors.size)))


class Nearest(SecretRng):
    """What rounding to the nearest level would draw: always a half."""

    def uniform(self, size: int) -> np.ndarray:
        return np.full(size, 0.5)


class Nearly(SecretRng):
    """The largest uniform there is."""

    def uniform(self, size: int) -> np.ndarray:
        return np.full(size, 1 - 2.0**-53)


class Down(SecretRng):
    """What cutting off would draw: always nothing."""

    def uniform(self, size: int) -> np.ndarray:
        return np.zeros(size)


@pytest.mark.parametrize("bits", range(2, 9))
@pytest.mark.parametrize("value", [0.013, -0.31, 0.97])
def test_rounding_has_the_vector_as_its_mean_and_a_biased_one_is_seen(bits: int, value: float) -> None:
    levels, rest = 2 ** (bits - 1) - 1, np.arange(64 * BLOCK) % BLOCK != 0
    vector = np.full(64 * BLOCK, value * levels, np.float32)
    vector[~rest] = levels  # so that the scale of every block is 1

    def errors(secret: SecretRng) -> np.ndarray:
        out = Blocks(bits).unpack(Blocks(bits).pack(vector, secret), len(vector), who="a site")
        assert np.array_equal(out[~rest], vector[~rest])
        return np.asarray((out.astype(np.float64) - vector)[rest])

    assert _bias(errors(rng()), vector[1]) > 1e-3
    for biased in (Nearest(bytes(32)), Down(bytes(32))):
        assert _bias(errors(biased), vector[1]) < 1e-6


def test_coordinates_are_rounded_independently_of_each_other() -> None:
    vector = np.full(64 * BLOCK, 0.5 / 127, np.float32)
    vector[::BLOCK] = 1.0
    up = through(vector, 8).reshape(64, BLOCK)[:, 1:] > 0
    assert stats.binomtest(int((up[:, ::2][:, :-1] == up[:, 1::2]).sum()), up[:, 1::2].size).pvalue > 1e-3
    assert not np.array_equal(through(vector, 8), through(vector, 8, 1))


@given(hnp.arrays(np.float32, st.integers(1, 40), elements=st.floats(width=32)), st.integers(2, 8))
def test_what_leaves_is_finite_and_near_or_refused(vector: np.ndarray, bits: int) -> None:
    """Every float32, the smallest and the largest ones included."""
    levels = 2 ** (bits - 1) - 1
    largest = float(np.abs(vector.astype(np.float64)).max())
    try:
        out = through(vector, bits)
    except ProtocolError:
        assert not largest < np.finfo(np.float32).max * (1 - 1e-6)
        return
    assert np.isfinite(out).all()
    assert np.abs(out.astype(np.float64) - vector).max() <= max(largest / levels * (1 + 1e-6), 2e-45)


@given(st.floats(2.0**-100, 2.0**100, width=32), st.integers(2, 8))
def test_no_level_is_missing_above_the_largest_value(largest: float, bits: int) -> None:
    """A scale rounded down would cut the largest off; a sum of a level and nearly 1 would pass the last code."""
    vector, levels = np.full(9, largest, np.float32), 2 ** (bits - 1) - 1
    payload = Blocks(bits).pack(vector, Nearly(bytes(32)))
    assert float(np.frombuffer(payload[1:5], "<f4")[0]) * levels >= largest
    np.testing.assert_allclose(Blocks(bits).unpack(payload, 9, who="a site"), vector, rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_update_that_is_not_finite_is_refused_at_the_site(bad: float) -> None:
    vector = np.zeros(2 * BLOCK, np.float32)
    vector[-1] = bad
    with pytest.raises(ProtocolError, match="NaN or infinite"):
        Blocks(8).pack(vector, rng())


def frame(payload: bytes) -> int:
    """Return the bytes of the whole message that carries it."""
    metrics: dict[str, Json] = {"charges": 40, "ledger_head": "f" * 64}
    return len(encode(Release(payload, "site-01", 12, "a" * 64, "b" * 64, metrics)))


@pytest.mark.parametrize("dim", [6978, 19434])  # the MLP on Adult, a CNN on MNIST
@pytest.mark.parametrize("law", ["noised", "plain"])
def test_a_whole_frame_of_eight_bits_is_a_quarter_of_float32_or_less(dim: int, law: str) -> None:
    generator = np.random.default_rng(dim)
    drawn = generator.standard_normal(dim) if law == "noised" else generator.standard_t(3, dim)
    vector = drawn.astype(np.float32)
    sizes = {bits: frame(Blocks(bits).pack(vector, rng())) / frame(pack_vector(vector)) for bits in (2, 4, 8)}
    assert sizes[8] <= 0.25
    assert sizes[4] <= 0.125
    assert sizes[2] <= 0.0625


def test_codes_without_a_pattern_are_packed_tightly() -> None:
    vector = np.random.default_rng(0).uniform(-1, 1, 4 * BLOCK).astype(np.float32)
    for bits in (5, 6, 7):  # two of 2^bits codes hardly matter, so that a Huffman code gains nothing
        payload = Blocks(bits).pack(vector, rng())
        assert payload[0] == 0
        assert len(payload) == Blocks(bits).expected_size(len(vector)) == 1 + 16 + bits * len(vector) // 8
    assert np.abs(through(vector, 6) - vector).max() <= 1 / 31


def _deflated(raw: bytes) -> bytes:
    engine = zlib.compressobj(9, zlib.DEFLATED, -15)
    return engine.compress(raw) + engine.flush()


ONE = np.ones(1, "<f4").tobytes()
HOSTILE = {
    "empty": (8, b"", "bytes"),
    "no body": (8, b"\0" + ONE, "8 bytes of codes"),
    "one byte too many": (8, b"\0" + ONE + bytes(9), "bytes"),
    "unknown flag": (8, b"\2" + ONE + bytes(8), "flag"),
    "NaN scale": (8, b"\0" + np.array(np.nan, "<f4").tobytes() + bytes(8), "scales"),
    "a scale that is a signalling NaN": (8, b"\0" + b"\0\0\x81\x7f" + bytes(8), "scales"),
    "infinite scale": (8, b"\0" + np.array(np.inf, "<f4").tobytes() + bytes(8), "scales"),
    "negative scale": (8, b"\0" + np.array(-1, "<f4").tobytes() + bytes(8), "scales"),
    "a scale whose multiples are infinite": (8, b"\0" + np.array(3e38, "<f4").tobytes() + bytes(8), "scales"),
    "a code that no level has": (8, b"\0" + ONE + b"\xff" * 8, "codes up to 254"),
    "bits after the last code": (3, b"\0" + ONE + bytes(2) + b"\xff", "zeros"),
    "a longer stream": (8, b"\1" + ONE + _deflated(bytes(9)), "8 bytes of codes"),
    "a much longer stream": (8, b"\1" + ONE + _deflated(bytes(90)), "longer"),
    "a shorter stream": (8, b"\1" + ONE + _deflated(bytes(7)), "8 bytes of codes"),
    "a cut stream": (8, b"\1" + ONE + _deflated(bytes(8))[:-1], "cut"),
    "a second stream": (8, b"\1" + ONE + _deflated(bytes(8)) + b"\0", "followed"),
    "no stream": (8, b"\1" + ONE + b"\xff" * 4, "inflated"),
    "a deflated bit of no code": (3, b"\1" + ONE + _deflated(b"\x40\0\0\0"), "bytes"),
}  # fmt: skip


@pytest.mark.parametrize(("bits", "payload", "words"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_payload_is_refused(bits: int, payload: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        Blocks(bits).unpack(payload, 8 if bits == 8 else 7, who="a site")


def test_stray_bits_are_seen_inside_a_deflated_byte() -> None:
    assert Packing.whole(3).unpack(b"\x09", 2) is not None  # two codes of three bits; the upper two bits are no code's
    assert Packing.whole(3).unpack(b"\x49", 2) is None


def test_rounding_before_the_noise_is_refused_and_after_it_allowed() -> None:
    bounded = SPEC.with_(unit=Unit.RECORD, l2_bound=1.0, range_linf=1.0)
    with pytest.raises(IllegalChain, match="drawn at the site"):
        Blocks(8).contract(bounded)
    with pytest.raises(IllegalChain, match="integers in a ring"):
        Blocks(8).contract(SPEC.with_(encoding=Encoding.RING))
    assert Blocks(8).contract(bounded.with_(noised=True)).l2_bound is None
    out = Blocks(8).contract(SPEC.with_(l2_bound=1.0, range_linf=1.0))
    assert (out.l2_bound, out.range_linf) == (None, None)


@pytest.mark.parametrize("bits", [1, 9])
def test_bits_out_of_range_are_refused(bits: int) -> None:
    with pytest.raises(PlanError, match="2 to 8"):
        Blocks(bits)
