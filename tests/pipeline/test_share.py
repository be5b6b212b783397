"""Shares of integer noise: what they add up to, and what their contract refuses."""

import math

import numpy as np
import pytest
from scipy import stats

from consilia.core.errors import IllegalChain
from consilia.core.randomness import SecretRng, SharedSeed
from consilia.core.ring import Ring
from consilia.core.spec import Encoding, Segment, Unit, UpdateSpec
from consilia.dp.event import DiscreteGaussianEvent
from consilia.pipeline.clip import Clip
from consilia.pipeline.grid import Cut, Grid, Rounding, Weigh
from consilia.pipeline.noise import ServerNoise, SiteNoise
from consilia.pipeline.share import NoiseShare
from consilia.pipeline.transform import SiteContext, SumContext, Transform

D, SITES, SCALE, RING = 20_000, 5, 2.0**14, Ring(32)
SPEC = UpdateSpec((Segment("w", (D,)),), unit=Unit.SITE, sites=SITES)
INTEGERS = SPEC.with_(
    encoding=Encoding.RING, ring=RING, scale=SCALE, weighted=True, l2_bound=SCALE + 141.5, range_linf=SCALE + 1
)


def at_site(number: int = 0, weight: float = 1.0) -> SiteContext:
    return SiteContext(SecretRng(number.to_bytes(32, "big")), SharedSeed.of(0), weight)


def chain(share: NoiseShare) -> tuple[Transform, ...]:
    return Clip(((D, 1.0),)), Weigh(), Cut(1.0), Grid(SCALE, RING, Rounding.CONDITIONAL, 1.0), share


def test_the_decoded_sum_of_shares_has_the_claimed_noise_and_a_wrong_scale_is_seen() -> None:
    share = NoiseShare(4_000_000, 3)
    steps, spec = chain(share), SPEC
    for step in steps:
        spec = step.contract(spec)
    assert spec.noised
    total = RING.lift(np.zeros(D, np.int64))
    weights = [1.0, 0.5, 0.25, 1.0, 0.1]
    vectors = np.random.default_rng(0).normal(size=(SITES, D)) / math.sqrt(D)
    for i, (weight, vector) in enumerate(zip(weights, vectors, strict=True)):
        context, out = at_site(i, weight), vector
        for step in steps:
            out = step.encode(out, context)
        total = total + RING.lift(out)  # wraps as a secure sum does
    decoded = RING.center(total)
    for step in reversed(steps):
        decoded = step.decode(decoded, SumContext(at_site(9).rng, SharedSeed.of(0)))
    clipped = [v * min(1, 1 / np.linalg.norm(v)) for v in vectors]
    left = decoded - sum(w * v for w, v in zip(weights, clipped, strict=True))
    # Rounding adds at most a quarter of a squared step for each site.
    claimed = math.sqrt(SITES * share.share_variance) / SCALE
    assert stats.kstest(left / claimed, "norm").pvalue > 1e-3
    assert stats.kstest(left / (claimed / 1.2), "norm").pvalue < 1e-6
    assert stats.kstest(left / (claimed * math.sqrt(3 / 5)), "norm").pvalue < 1e-6  # of the counted shares alone


def test_the_counted_shares_over_the_sensitivity_are_the_noise_multiplier() -> None:
    event = DiscreteGaussianEvent(4_000_000, 3, SCALE + 141.5, D)
    assert NoiseShare(4_000_000, 3).noise_multiplier(SCALE + 141.5) == pytest.approx(event.ratio)
    assert NoiseShare(4_000_000, 3).noise_multiplier(0.0) == math.inf


REFUSED = [
    (NoiseShare(10**6, 3), {"noised": True}, "without noise yet"),
    (NoiseShare(10**6, 3), {"l2_bound": None}, "bounded sensitivity"),
    (NoiseShare(10**6, 3), {"encoding": Encoding.REAL}, "integers of bounded range in a ring; got real values"),
    (NoiseShare(10**6, 3), {"range_linf": None}, "integers of bounded range"),
    (NoiseShare(0, 3), {}, "a variance from 1 to"),
    (NoiseShare(10**17, 3), {}, "a variance from 1 to"),
    (NoiseShare(10**6, 0), {}, "1 to 5 shares"),
    (NoiseShare(10**6, 6), {}, "1 to 5 shares to count on; got 6"),
    (
        NoiseShare(10**13, 3),
        {"ring": Ring(24)},
        r"room for 5 sites x 16385 \+ noise of \d+ = \d+ steps; got a ring of 24",
    ),
]


@pytest.mark.parametrize(("share", "change", "message"), REFUSED)
def test_contracts_refuse_with_their_reason(share: NoiseShare, change: dict[str, object], message: str) -> None:
    with pytest.raises(IllegalChain, match=message):
        share.contract(INTEGERS.with_(**change))


def test_room_is_counted_for_the_noise_of_every_site() -> None:
    room = Ring(24).largest - 5 * 16385
    fits = NoiseShare(int((room / 9.3) ** 2 / 5), 1)
    with pytest.raises(IllegalChain, match="room for 5 sites"):
        NoiseShare(fits.share_variance * 2, 1).contract(INTEGERS.with_(ring=Ring(24)))
    assert NoiseShare(fits.share_variance // 2, 1).contract(INTEGERS.with_(ring=Ring(24))).noised


def test_no_second_noise_of_another_kind() -> None:
    for other in (SiteNoise(1.0, 1e6), ServerNoise(1.0, 1e6)):
        with pytest.raises(IllegalChain, match="Draw the noise once"):
            other.contract(NoiseShare(10**6, 3).contract(INTEGERS))


def test_continuous_noise_on_integers_is_refused() -> None:
    for other in (SiteNoise(1.0, 1e6), ServerNoise(1.0, 1e6)):
        with pytest.raises(IllegalChain, match="real values; got integers"):
            other.contract(INTEGERS)
