"""Every number in the public ranges gets an answer, at a cost that the numbers bound; nearby ones get a valid one."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilia.dp import pld, ranges
from consilia.dp.accountant import bound, quick_bound, rdp_epsilon, rdp_vector
from consilia.dp.calibrate import gaussian_composition, noise_multiplier
from consilia.dp.event import Event

MULTIPLIERS = (1e-300, 1e-3, 0.3, 1e5, 1e9, 1e300)
RATES = (5e-324, 1e-9, 0.5, 1.0)
COUNTS = (1, 10**9, 10**18, 10**400)
DELTAS = (5e-324, 1e-5, 0.9)


@pytest.mark.parametrize("multiplier", MULTIPLIERS)
def test_every_corner_has_an_answer(multiplier: float) -> None:
    for rate, count, delta in itertools.product(RATES, COUNTS, DELTAS):
        if 1e-9 < rate < 1 and 1 < count < 10**18:
            continue  # long sampled runs: below
        event = Event(multiplier, rate)
        found = quick_bound([(event, count)], delta)
        assert found.epsilon >= 0
        assert not math.isnan(found.rdp)
        assert (rdp_vector(Event(multiplier, rate, min(count, 10**30))) >= 0).all()


@pytest.mark.parametrize("rates", [(5e-324, 1e-9), (1e-12, 1e-9)])
def test_a_rate_below_the_range_counts_as_its_end(rates: tuple[float, float]) -> None:
    low, high = (bound([(Event(0.5, rate), 10)], 1e-5).epsilon for rate in rates)
    assert low == high


def test_noise_outside_the_range_is_never_credited() -> None:
    assert bound([(Event(1e300), 1)], 1e-9).epsilon == bound([(Event(ranges.NOISE_MULTIPLIER.high), 1)], 1e-9).epsilon
    assert bound([(Event(1e-4, 0.1), 1)], 1e-5).epsilon == math.inf
    assert bound([(Event(1.0), 10**400)], 1e-5).epsilon == math.inf


@given(st.floats(-1, 4), st.floats(-9, -0.01), st.floats(0, 9), st.floats(-11, -1), st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_grid_bounds_the_work(z: float, q: float, steps: float, delta: float, quick: bool) -> None:
    parts = [(10**z, 10**q, int(10**steps))]
    about = rdp_epsilon([(Event(10**z, 10**q), int(10**steps))], 10**delta)
    for wide in (False, True):
        grid = pld._grid(parts, about, 1e-4 * 10**delta, wide=wide, quick=quick)
        assert pld._span(10**z, 10**q) / grid <= 80_000
        assert grid >= 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "rate", "steps"), [(1.0, 1e-9, 100), (1.0, 1e-9, 10**9), (1.0, 0.01, 10**9), (1.0, 1e-6, 100)]
)
def test_calibration_at_the_ends_of_the_ranges(
    monkeypatch: pytest.MonkeyPatch, target: float, rate: float, steps: int
) -> None:
    sizes = []
    real = pld._single

    def watched(*arguments: float) -> object:
        single = real(*arguments)  # type: ignore[arg-type]
        sizes.append(single._pmf_remove.size)
        return single

    monkeypatch.setattr(pld, "_single", watched)
    z = noise_multiplier(
        epsilon=target, delta=1e-5, make=lambda s: gaussian_composition(s, sampling_rate=rate, steps=steps)
    )
    assert bound(gaussian_composition(z, sampling_rate=rate, steps=steps), 1e-5).epsilon <= target
    assert max(sizes, default=0) <= 80_000
    assert len(sizes) <= 40
