"""Sensitivity of what a site sends, whatever it holds, and that the noise has the scale it claims."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from consilia.aggregate.rule import WeightedMean
from consilia.core.errors import IllegalChain, PlanError
from consilia.core.randomness import SecretRng, SharedSeed
from consilia.core.spec import Segment, Unit, UpdateSpec
from consilia.pipeline.build import build
from consilia.pipeline.chain import Chain
from consilia.pipeline.clip import Clip
from consilia.pipeline.noise import ServerNoise, SiteNoise
from consilia.pipeline.protection import Protection, learner_spec
from consilia.pipeline.transform import SiteContext, SumContext

SPEC = UpdateSpec((Segment("w", (6,)),))
anything = st.floats(allow_nan=True, allow_infinity=True, width=32)
vectors = hnp.arrays(np.float32, 6, elements=anything)


def rng(number: int = 0) -> SecretRng:
    return SecretRng(number.to_bytes(32, "big"))


def at_site(number: int = 0) -> SiteContext:
    return SiteContext(rng(number), SharedSeed.of(0))


@given(vectors, st.floats(1e-3, 1e3))
def test_clipped_norm_is_at_most_the_bound_even_as_float32(vector: np.ndarray, norm: float) -> None:
    out = Chain((Clip(((6, norm),)),)).encode(vector, at_site())
    assert np.isfinite(out).all()
    assert math.sqrt(float(np.sum(out.astype(np.float64) ** 2))) <= norm


@given(vectors)
def test_parts_are_clipped_on_their_own(vector: np.ndarray) -> None:
    clip = Clip(((4, 1.0), (2, 0.5)))
    out = clip.encode(vector, at_site())
    assert np.linalg.norm(out[:4]) <= 1.0
    assert np.linalg.norm(out[4:]) <= 0.5
    assert clip.bound == pytest.approx(math.sqrt(1.25))


@given(
    st.lists(st.tuples(vectors, st.floats(0.01, 100), st.booleans()), min_size=1, max_size=6),
    vectors,
    st.floats(0.01, 10),
    st.data(),
)
def test_one_site_moves_the_sum_by_at_most_the_stated_sensitivity(
    sites: list[tuple[np.ndarray, float, bool]], other: np.ndarray, norm: float, data: st.DataObject
) -> None:
    """Pattern A: unequal weights, missing sites, NaN, infinite and zero updates; zero-out and replacement."""
    weights = {f"s{i}": weight for i, (_, weight, _) in enumerate(sites)}
    protection = Protection(Unit.SITE, "server", 1.0, norm, None, 0, weights, {})
    clip = build(SPEC, protection).transforms[0]
    rule = WeightedMean(sum(weights.values()))
    changed = data.draw(st.integers(0, len(sites) - 1))

    def mean(replacement: np.ndarray | None) -> np.ndarray:
        total = rule.zero(6)
        for i, (vector, weight, present) in enumerate(sites):
            if i == changed:
                if replacement is not None:
                    rule.add(total, clip.encode(replacement, at_site()), weight)
            elif present:
                rule.add(total, clip.encode(vector, at_site()), weight)
        return rule.finish(total, total.total)

    stated = protection.sum_sensitivity / sum(weights.values())
    assert np.linalg.norm(mean(sites[changed][0]) - mean(None)) <= stated * (1 + 1e-9)
    assert np.linalg.norm(mean(sites[changed][0]) - mean(other)) <= 2 * stated * (1 + 1e-9)


@pytest.mark.parametrize("placement", ["site", "server"])
def test_noise_has_its_scale_and_a_wrong_one_is_seen(placement: str) -> None:
    d, norm, z, weights = 20_000, 0.7, 1.3, {"a": 3.0, "b": 1.0}
    spec = UpdateSpec((Segment("w", (d,)),))
    chain = build(spec, Protection(Unit.SITE, placement, z, norm, None, 0, weights, {}))
    rule = WeightedMean(4.0)
    total = rule.zero(d)
    zero = np.zeros(d, np.float32)
    for i, weight in enumerate(weights.values()):
        rule.add(total, chain.encode(zero, at_site(i)), weight)
    seen = chain.decode(total.total, SumContext(rng(9), SharedSeed.of(0)))
    # At the server one noise, scaled for the largest weight; at the sites every site's own.
    expected = z * norm * (3.0 if placement == "server" else math.hypot(3.0, 1.0))
    assert stats.kstest(seen / expected, "norm").pvalue > 1e-3
    assert stats.kstest(seen / (expected / 1.2), "norm").pvalue < 1e-6


def test_a_missing_clip_is_refused_by_contract() -> None:
    for noise in (SiteNoise(1.0, 1.0), ServerNoise(1.0, 1.0)):
        with pytest.raises(IllegalChain, match="Clip before the noise"):
            Chain((noise,)).contract(SPEC)
    with pytest.raises(PlanError, match="no bound"):
        SPEC.sensitivity(Unit.SITE)


def test_noise_twice_and_clip_after_noise_are_refused() -> None:
    clip, noise = Clip(((6, 1.0),)), SiteNoise(1.0, 1.0)
    with pytest.raises(IllegalChain, match="Draw the noise once"):
        Chain((clip, noise, noise)).contract(SPEC)
    with pytest.raises(IllegalChain, match="before the noise"):
        Chain((clip, noise, clip)).contract(SPEC)
    with pytest.raises(IllegalChain, match="at most 1"):
        Chain((Clip(((6, 2.0),)), noise)).contract(SPEC)
    with pytest.raises(IllegalChain, match="add up to 6"):
        Chain((Clip(((5, 2.0),)),)).contract(SPEC)


def test_record_noise_at_the_site_is_the_learners_and_is_not_drawn_twice() -> None:
    protection = Protection(Unit.RECORD, "site", 1.0, 1.0, None, 0, {"a": 1.0}, {"a": 10.0})
    assert build(SPEC, protection).transforms == ()
    assert learner_spec(SPEC, protection).noised


def test_record_noise_at_the_server_is_scaled_for_the_worst_site() -> None:
    protection = Protection(Unit.RECORD, "server", 2.0, 0.5, None, 0, {"a": 10.0, "b": 1.0}, {"a": 100.0, "b": 2.0})
    (noise,) = build(SPEC, protection).transforms
    assert isinstance(noise, ServerNoise)
    assert noise.sum_sensitivity == pytest.approx(max(10 * 0.5 / 100, 1 * 0.5 / 2))
    assert build(SPEC, protection).contract(learner_spec(SPEC, protection)).noised


def test_control_variate_adds_to_the_sensitivity() -> None:
    protection = Protection(Unit.SITE, "site", 1.0, 3.0, 4.0, 3, {"a": 1.0}, {})
    assert protection.site_bound("a") == pytest.approx(5.0)
    clip, noise = build(SPEC, protection).transforms
    assert isinstance(clip, Clip)
    assert clip.norms == ((3, 3.0), (3, 4.0))
    assert isinstance(noise, SiteNoise)
    assert noise.sensitivity == pytest.approx(5.0)
