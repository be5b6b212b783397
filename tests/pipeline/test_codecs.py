"""What every codec promises: the vector comes back in its shape, and no payload breaks or fills the reader."""

import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from consilia.core.errors import ProtocolError
from consilia.core.randomness import SecretRng
from consilia.pipeline.blocks import BLOCK, Blocks
from consilia.pipeline.codec import Codec, Dense
from consilia.pipeline.packing import Packing
from consilia.pipeline.sparse import Sparse

CODECS: list[Codec] = [Dense(), *map(Blocks, range(2, 9)), Sparse(40)]
dims = st.sampled_from([0, 1, 7, 8, 40, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
names = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)


def rng(number: int = 0) -> SecretRng:
    return SecretRng(number.to_bytes(32, "big"))


def vector_for(codec: Codec, dim: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    vector = generator.standard_normal(dim).astype(np.float32)
    if isinstance(codec, Sparse):
        vector[generator.permutation(dim)[codec.kept :]] = 0
    return vector


def assert_read_or_refused(codec: Codec, payload: bytes, dim: int) -> None:
    try:
        out = codec.unpack(payload, dim, who="a site")
    except ProtocolError:
        return
    assert out.shape == (dim,)
    assert out.dtype == np.float32
    assert np.isfinite(out).all() or isinstance(codec, Dense)


@names
@given(dim=dims, seed=st.integers(0, 99))
def test_a_vector_comes_back_in_its_shape_within_the_size_that_was_forecast(codec: Codec, dim: int, seed: int) -> None:
    vector = vector_for(codec, dim, seed)
    payload = codec.pack(vector, rng(seed))
    assert len(payload) <= codec.expected_size(dim)
    out = codec.unpack(memoryview(payload), dim, who="a site")
    assert out.shape == (dim,)
    assert out.dtype == np.float32
    if "int" not in codec.name:
        assert np.array_equal(out, vector)
    else:
        levels = 2 ** (int(codec.name[-1]) - 1) - 1
        assert np.abs(out - vector).max(initial=0) <= np.abs(vector).max(initial=0) / levels * 1.001
    if isinstance(codec, Sparse):
        assert not out[vector == 0].any()


@names
@given(payload=st.binary(max_size=300), dim=dims)
def test_arbitrary_bytes_are_read_or_refused_in_words(codec: Codec, payload: bytes, dim: int) -> None:
    assert_read_or_refused(codec, payload, dim)


@names
@given(dim=dims, seed=st.integers(0, 9), data=st.data())
def test_a_changed_payload_is_read_or_refused(codec: Codec, dim: int, seed: int, data: st.DataObject) -> None:
    """Arbitrary bytes rarely get past the lengths: flip, cut and lengthen what is right."""
    payload = bytearray(codec.pack(vector_for(codec, dim, seed), rng(seed)))
    for _ in range(data.draw(st.integers(1, 3))):
        if payload:
            payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    payload = payload[: data.draw(st.integers(0, len(payload)))] if data.draw(st.booleans()) else payload
    payload += data.draw(st.binary(max_size=3))
    assert_read_or_refused(codec, bytes(payload), dim)


@names
def test_a_wrong_dimension_is_refused(codec: Codec) -> None:
    payload = codec.pack(vector_for(codec, 2 * BLOCK, 0), rng())
    for dim in (BLOCK, 4 * BLOCK):
        with pytest.raises(ProtocolError):
            codec.unpack(payload[:-1], dim, who="a site")


def _bombs() -> list[tuple[Codec, bytes]]:
    engine = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = engine.compress(bytes(50_000_000)) + engine.flush()
    return [
        (Blocks(8), b"\1" + np.ones(200, "<f4").tobytes() + bomb),
        (Sparse(40), b"\0" + (2**32 - 1).to_bytes(4, "big") + b"\xff" * 200),
        (Sparse(40), b"\1" + (2**32 - 1).to_bytes(4, "big") + b"\xff" * 200),
    ]  # fmt: skip


@pytest.mark.parametrize(("codec", "payload"), _bombs(), ids=["blocks", "gaps", "bitmap"])
def test_memory_is_bounded_by_the_dimension(codec: Codec, payload: bytes) -> None:
    dim = 200 * BLOCK
    codec.unpack(codec.pack(vector_for(codec, dim, 0), rng()), dim, who="a site")  # what is made once is not counted
    tracemalloc.start()
    with pytest.raises(ProtocolError):
        codec.unpack(payload, dim, who="a site")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * dim


@given(st.integers(1, 8), hnp.arrays(np.uint8, st.integers(0, 100)))
def test_codes_come_back_from_both_packings(bits: int, raw: np.ndarray) -> None:
    codes = raw & np.uint8((1 << bits) - 1)
    for packing in (Packing.tight(bits), Packing.whole(bits)):
        packed = packing.pack(codes)
        assert len(packed) == packing.size(len(codes))
        again = packing.unpack(packed, len(codes))
        assert again is not None
        assert np.array_equal(again, codes)
    assert Packing.tight(bits).size(len(codes)) == -(-len(codes) * bits // 8)
