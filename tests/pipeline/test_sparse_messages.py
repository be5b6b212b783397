"""Top-k, random-k and the sparse codec: what is kept, what is bounded, what is refused."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from consilia.core.errors import IllegalChain, PlanError, ProtocolError
from consilia.core.randomness import SecretRng, SharedSeed
from consilia.core.spec import Encoding, Segment, Unit, UpdateSpec
from consilia.pipeline.chain import Chain
from consilia.pipeline.clip import Clip
from consilia.pipeline.noise import ServerNoise, SiteNoise
from consilia.pipeline.random_k import RandomK
from consilia.pipeline.sparse import Sparse
from consilia.pipeline.top_k import RESIDUAL, TopK
from consilia.pipeline.transform import SiteContext, State, SumContext

SPEC = UpdateSpec((Segment("w", (6,)),))
finite = st.floats(-1e6, 1e6, width=32)


def rng(number: int = 0) -> SecretRng:
    return SecretRng(number.to_bytes(32, "big"))


def at_site(seed: int = 0, state: State | None = None) -> SiteContext:
    return SiteContext(rng(seed), SharedSeed.of(seed), state={} if state is None else state)


def empty() -> State:
    return {}


def at_server(seed: int = 0) -> SumContext:
    return SumContext(rng(seed), SharedSeed.of(seed))


# random-k


@given(hnp.arrays(np.float32, (3, 17), elements=finite), st.integers(1, 17), st.integers(0, 1000))
def test_sites_and_server_draw_the_same_places_and_sums_come_back(vectors: np.ndarray, k: int, seed: int) -> None:
    step = RandomK(17, k)
    encoded = [step.encode(vector, at_site(seed)) for vector in vectors]
    assert all(part.shape == (k,) for part in encoded)
    out = step.decode(np.sum(encoded, axis=0), at_server(seed))
    assert out.shape == (17,)
    ones = step.decode(step.encode(np.ones(17), at_site(seed)), at_server(seed))
    drawn = ones > 0
    assert drawn.sum() == k
    assert not out[~drawn].any()
    np.testing.assert_allclose(out[drawn], vectors.astype(np.float64).sum(axis=0)[drawn] * 17 / k, rtol=1e-9, atol=1e-6)


def test_every_coordinate_is_drawn_equally_often_so_that_the_mean_is_the_vector() -> None:
    dim, k, rounds = 30, 3, 4000
    step, vector = RandomK(dim, k), np.arange(1.0, dim + 1)
    total = np.zeros(dim)
    for seed in range(rounds):
        total += step.decode(step.encode(vector, at_site(seed)), at_server(seed))
    drawn = total / vector / (dim / k)  # how often
    assert stats.chisquare(drawn).pvalue > 1e-3
    skewed = drawn.copy()
    skewed[: dim // 2] *= 1.2  # what a draw that likes the first half would give
    assert stats.chisquare(skewed / skewed.sum() * drawn.sum()).pvalue < 1e-3
    assert np.abs(total / rounds / vector - 1).max() < 6 * math.sqrt((dim / k - 1) / rounds)
    unscaled = total / rounds / (dim / k)
    assert np.abs(unscaled / vector - 1).max() > 0.8


def test_the_draw_is_that_of_every_other_version() -> None:
    """Known answer: sites and coordinator with different releases of numpy must agree."""
    drawn = np.flatnonzero(RandomK(1000, 6).decode(np.ones(6), SumContext(rng(), SharedSeed.of(7))))
    assert drawn.tolist() == [131, 188, 472, 476, 655, 980]


@given(hnp.arrays(np.float32, 6, elements=st.floats(allow_nan=True, allow_infinity=True, width=32)),
       st.floats(0.01, 100), st.integers(1, 6), st.integers(0, 50))  # fmt: skip
def test_bounds_hold_after_the_draw(vector: np.ndarray, norm: float, k: int, seed: int) -> None:
    chain = Chain((Clip(((6, norm),)), RandomK(6, k)))
    stated = chain.contract(SPEC)
    assert stated.l2_bound == pytest.approx(norm * 6 / k)
    assert (stated.kept, stated.sent, stated.dim) == (k, k, 6)
    assert stated.l2_bound is not None
    assert stated.range_linf is not None
    out = chain.encode(vector, at_site(seed)).astype(np.float64)
    assert np.linalg.norm(out) <= stated.l2_bound
    assert np.abs(out).max() <= stated.range_linf


def test_the_bound_is_reached_so_that_a_smaller_one_would_be_wrong() -> None:
    chain = Chain((Clip(((6, 1.0),)), RandomK(6, 2)))
    seen = max(float(np.linalg.norm(chain.encode(np.eye(6, dtype=np.float32)[0], at_site(seed)))) for seed in range(30))
    assert seen == pytest.approx(3.0, rel=1e-5)


def test_noise_at_either_place_composes_with_random_k() -> None:
    wide = UpdateSpec((Segment("w", (40,)),))
    site = Chain((Clip(((40, 1.0),)), RandomK(40, 10), SiteNoise(1.0, 4.0)))
    assert site.contract(wide).noised
    with pytest.raises(IllegalChain, match="at most 1"):
        Chain((Clip(((40, 1.0),)), RandomK(40, 10), SiteNoise(1.0, 1.0))).contract(wide)
    server = Chain((Clip(((40, 1.0),)), RandomK(40, 10), ServerNoise(1.0, 4.0)))
    server.contract(wide)
    out = server.decode(server.encode(np.ones(40, np.float32), at_site(3)), at_server(3))
    assert out.shape == (40,)
    assert np.count_nonzero(out) == 10
    after = Chain((Clip(((40, 1.0),)), SiteNoise(1.0, 1.0), RandomK(40, 10))).contract(wide)
    assert (after.noised, after.l2_bound, after.sent) == (True, None, 10)


def test_random_k_refuses_what_it_cannot_draw_from() -> None:
    with pytest.raises(PlanError, match="1 to 6"):
        RandomK(6, 0)
    with pytest.raises(PlanError, match="1 to 6"):
        RandomK(6, 7)
    for spec in (SPEC.with_(kept=3), UpdateSpec((Segment("w", (5,)),)), SPEC.with_(shared_support=False)):
        with pytest.raises(IllegalChain, match="all of 6"):
            RandomK(6, 2).contract(spec)
    with pytest.raises(IllegalChain, match="before the grid"):
        RandomK(6, 2).contract(SPEC.with_(encoding=Encoding.RING))


# top-k


@given(hnp.arrays(np.float32, (8, 12), elements=finite), st.integers(1, 14))
def test_what_was_sent_and_what_is_left_add_up_to_what_came_in(vectors: np.ndarray, k: int) -> None:
    step, state = TopK(k), empty()
    sent, residual = np.zeros(12), np.zeros(12, np.float32)
    for vector in vectors:
        before = {key: value.copy() for key, value in state.items()}
        handed = dict(state)
        out = step.encode(vector, at_site(state=state))
        assert all(np.array_equal(handed[key], value) for key, value in before.items())  # the old state is untouched
        assert np.count_nonzero(out) <= k
        # Exactly: each coordinate is in one of both, and their sum is the float32 sum of what came and what was left.
        assert np.array_equal(out + state[RESIDUAL], vector + residual)
        assert np.abs(out[out != 0]).min(initial=np.inf) >= np.abs(state[RESIDUAL]).max()
        sent, residual = sent + out, state[RESIDUAL].astype(np.float32, copy=False)
        assert state[RESIDUAL].dtype == np.float32
    total = vectors.astype(np.float64).sum(axis=0)
    size = np.abs(vectors.astype(np.float64)).sum()
    assert np.abs(sent + residual - total).max() <= 8 * 2.0**-23 * size + 1e-30


def test_error_feedback_sends_late_what_it_left_out() -> None:
    step, state = TopK(1), empty()
    vector = np.array([1.0, 0.4, 0.3], np.float32)
    sent = [int(np.flatnonzero(step.encode(vector, at_site(state=state)))[0]) for _ in range(17)]
    assert [sent.count(i) for i in range(3)] == [9, 4, 4]


def test_the_same_vector_and_state_give_the_same_answer() -> None:
    vector = np.arange(6, dtype=np.float32)
    state: State = {RESIDUAL: np.ones(6, np.float32)}
    first: State = dict(state)
    again: State = dict(state)
    assert np.array_equal(TopK(2).encode(vector, at_site(state=first)), TopK(2).encode(vector, at_site(5, state=again)))
    assert np.array_equal(first[RESIDUAL], again[RESIDUAL])
    assert np.array_equal(state[RESIDUAL], np.ones(6, np.float32))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 3e38])
def test_what_is_not_finite_never_gets_into_the_residual(bad: float) -> None:
    state: State = {RESIDUAL: np.full(3, 3e38, np.float32)}
    with pytest.raises(ProtocolError, match="finite"):
        TopK(1).encode(np.array([0, bad, 0], np.float32), at_site(state=state))
    assert np.array_equal(state[RESIDUAL], np.full(3, 3e38, np.float32))


def test_top_k_composes_with_neither_privacy_nor_sums_nor_random_k() -> None:
    dropped = TopK(2).contract(SPEC.with_(l2_bound=1.0, range_linf=1.0))
    assert (dropped.l2_bound, dropped.range_linf, dropped.shared_support, dropped.sent) == (None, None, False, 6)
    for spec, words in (
        (SPEC.with_(unit=Unit.SITE, l2_bound=1.0), "privacy for one site"),
        (SPEC.with_(noised=True), "noise in the update already"),
        (SPEC.with_(encoding=Encoding.RING), "integers in a ring"),
        (SPEC.with_(kept=3), "not both"),
    ):
        with pytest.raises(IllegalChain, match=words):
            TopK(2).contract(spec)
    clip = Clip(((6, 1.0),))
    for chain in (
        Chain((TopK(2), SiteNoise(1.0, 1.0))), Chain((TopK(2), clip, SiteNoise(1.0, 1.0))),
        Chain((TopK(2), clip, ServerNoise(1.0, 1.0))), Chain((clip, TopK(2))), Chain((TopK(2), RandomK(6, 2))),
    ):  # fmt: skip
        with pytest.raises(IllegalChain, match="random_k"):
            chain.contract(SPEC)
    with pytest.raises(PlanError, match="at least 1"):
        TopK(0)


# the sparse codec


@given(st.integers(1, 3000), st.integers(0, 60), st.integers(0, 99))
def test_few_values_come_back_exactly_wherever_they_are(dim: int, count: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    vector = np.zeros(dim, np.float32)
    vector[generator.permutation(dim)[:count]] = generator.standard_normal(min(count, dim))
    codec = Sparse(60)
    payload = codec.pack(vector, rng())
    assert np.array_equal(codec.unpack(payload, dim, who="a site"), vector)
    assert len(payload) <= codec.expected_size(dim)


def test_the_smaller_way_to_say_where_is_taken() -> None:
    dim = 200_000
    for count, flag in ((dim // 100, 0), (dim // 4, 1)):
        vector = np.zeros(dim, np.float32)
        vector[np.random.default_rng(0).permutation(dim)[:count]] = 1
        payload = Sparse(count).pack(vector, rng())
        assert payload[0] == flag
        assert len(payload) <= 5 + 4 * count + min(1.3 * count, dim / 8)
    far = np.zeros(dim, np.float32)
    far[[1, dim - 1]] = 1  # a gap of three bytes
    assert np.array_equal(Sparse(2).unpack(Sparse(2).pack(far, rng()), dim, who="a site"), far)


def _sparse(flag: int, count: int, rest: bytes) -> bytes:
    return bytes([flag]) + count.to_bytes(4, "big") + rest


VALUES = np.ones(3, "<f4").tobytes()
HOSTILE = {
    "empty": (b"", "bytes"),
    "unknown flag": (_sparse(2, 0, b""), "flag"),
    "more than were agreed": (_sparse(0, 4, bytes(4) + VALUES[:8]), "at most 3"),
    "fewer gaps than it says": (_sparse(0, 3, b"\x80" * 15), "3 gaps"),
    "a place beyond the vector": (_sparse(0, 3, b"\1\1\x61" + VALUES), "below 100"),
    "a gap that would wrap": (_sparse(0, 3, b"\1\1\xff\xff\xff\xff\x7f" + VALUES[:8]), "below 100"),
    "a gap of six bytes": (_sparse(0, 2, b"\1\x80\x80\x80\x80\x80\1" + VALUES[:8]), "shortest"),
    "a gap in a longer form": (_sparse(0, 2, b"\1\x81\0" + VALUES[:8]), "shortest"),
    "a value too few": (_sparse(0, 3, b"\1\1\1" + VALUES[:8]), "float32 values"),
    "a value too many": (_sparse(0, 2, b"\1\1" + VALUES), "float32 values"),
    "a value that is NaN": (_sparse(0, 1, b"\1" + np.array(np.nan, "<f4").tobytes()), "finite"),
    "a value that is infinite": (_sparse(0, 1, b"\1" + np.array(-np.inf, "<f4").tobytes()), "finite"),
    "a short bitmap": (_sparse(1, 0, bytes(12)), "13 bytes"),
    "another number of bits": (_sparse(1, 2, b"\7" + bytes(12)), "2 places"),
    "a bit beyond the vector": (_sparse(1, 1, bytes(12) + b"\x80"), "1 places"),
}  # fmt: skip


@pytest.mark.parametrize(("payload", "words"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_payload_is_refused(payload: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        Sparse(3).unpack(payload, 100, who="a site")


def test_the_codec_is_for_chosen_coordinates_only() -> None:
    with pytest.raises(IllegalChain, match="top_k"):
        Sparse(2).contract(SPEC)
    chosen = TopK(2).contract(SPEC)
    assert Sparse(2).contract(chosen) == chosen
    with pytest.raises(ProtocolError, match="3 values"):
        Sparse(2).pack(np.ones(3, np.float32), rng())
    with pytest.raises(ProtocolError, match="NaN"):
        Sparse(2).pack(np.array([0, np.nan], np.float32), rng())
