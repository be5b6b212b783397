"""Small messages beside noise: the noise covers what leaving coordinates out stretches."""

import math

import numpy as np
import pytest
from scipy import stats

from consilia.core.errors import IllegalChain
from consilia.core.randomness import SecretRng, SharedSeed
from consilia.core.spec import Segment, Unit, UpdateSpec
from consilia.pipeline.build import Messages, build
from consilia.pipeline.chain import Chain
from consilia.pipeline.clip import Clip
from consilia.pipeline.noise import ServerNoise
from consilia.pipeline.protection import Protection
from consilia.pipeline.random_k import RandomK
from consilia.pipeline.transform import SiteContext, SumContext

D, K = 60_000, 6_000
SPEC = UpdateSpec((Segment("w", (D,)),))
WEIGHTS = {"a": 3.0, "b": 1.0}


def rng(number: int) -> SecretRng:
    return SecretRng(number.to_bytes(32, "big"))


def chain_for(placement: str) -> Chain:
    return build(SPEC, Protection(Unit.SITE, placement, 1.3, 0.7, None, 0, WEIGHTS, {}), Messages(random_k=K))


def summed(chain: Chain, vector: np.ndarray) -> np.ndarray:
    total = np.zeros(K)
    for number, weight in enumerate(WEIGHTS.values()):
        total += weight * chain.encode(vector.astype(np.float32), SiteContext(rng(number), SharedSeed.of(5)))
    return chain.decode(total, SumContext(rng(9), SharedSeed.of(5)))


@pytest.mark.parametrize("placement", ["site", "server"])
def test_noise_is_scaled_for_the_stretched_update_and_less_is_seen(placement: str) -> None:
    out = summed(chain_for(placement), np.zeros(D))
    noise = out[out != 0]
    assert len(noise) == K  # what was not sent is neither noise nor signal
    expected = 1.3 * 0.7 * D / K * (3.0 if placement == "server" else math.hypot(3.0, 1.0))
    assert stats.kstest(noise / expected, "norm").pvalue > 1e-3
    assert stats.kstest(noise / (expected / 1.2), "norm").pvalue < 1e-6


def test_the_multiplier_that_is_charged_is_that_of_the_noise_on_what_is_sent() -> None:
    chain = chain_for("server")
    assert chain.noise_multiplier(3.0 * 0.7) == pytest.approx(1.3)
    assert chain.noise_multiplier(1.0 * 0.7) == pytest.approx(3 * 1.3)


def test_noise_at_the_server_before_a_step_that_stretches_is_refused() -> None:
    clip, noise = Clip(((D, 0.7),)), ServerNoise(1.3, 3 * 0.7)
    with pytest.raises(IllegalChain, match="Put it last"):
        Chain((clip, noise, RandomK(D, K))).contract(SPEC)
    Chain((clip, RandomK(D, K), noise)).contract(SPEC)


def test_bits_before_noise_at_the_server_are_refused_and_after_the_sites_own_allowed() -> None:
    with pytest.raises(IllegalChain, match="drawn at the site"):
        build(SPEC, Protection(Unit.SITE, "server", 1.3, 0.7, None, 0, WEIGHTS, {}), Messages(bits=8))
    with pytest.raises(IllegalChain, match="drawn at the site"):
        build(
            SPEC, Protection(Unit.RECORD, "server", 1.3, 0.7, None, 0, WEIGHTS, {"a": 9.0, "b": 9.0}), Messages(bits=8)
        )
    chain = build(SPEC, Protection(Unit.SITE, "site", 1.3, 0.7, None, 0, WEIGHTS, {}), Messages(random_k=K, bits=8))
    vector = chain.encode(np.zeros(D, np.float32), SiteContext(rng(0), SharedSeed.of(5)))
    assert chain.unpack(chain.pack(vector, rng(1)), "a site").shape == (K,)
