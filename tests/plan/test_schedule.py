import math
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilia.core.randomness import SharedSeed
from consilia.plan.schedule import inclusions, schedule
from consilia.plan.schema import AggregationSection

Counts = st.lists(st.integers(1, 100_000), min_size=1, max_size=12).map(
    lambda sizes: {f"site-{i:02}": size for i, size in enumerate(sizes)}
)


def turns(asked: tuple[tuple[str, ...], ...]) -> Counter[str]:
    return Counter(site for cohort in asked for site in cohort)


@given(counts=Counts, data=st.data(), rounds=st.integers(1, 40), seed=st.integers(0, 2**62))
def test_counted_sampling_asks_nobody_more_than_its_share(
    counts: dict[str, int], data: st.DataObject, rounds: int, seed: int
) -> None:
    size = data.draw(st.integers(1, len(counts)))
    rule = AggregationSection(selection="count", count=size)
    asked = schedule(rule, counts, rounds, SharedSeed.of(seed))
    assert len(asked) == rounds
    assert all(len(cohort) == len(set(cohort)) == size and set(cohort) <= set(counts) for cohort in asked)
    share = size * rounds / len(counts)
    taken = turns(asked)
    assert all(math.floor(share) <= taken[site] <= math.ceil(share) for site in counts)


@given(counts=Counts, tilt=st.floats(0, 1), data=st.data())
def test_tilted_shares_add_up_and_fall_with_size(counts: dict[str, int], tilt: float, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, len(counts)))
    share = inclusions(AggregationSection(selection="tilted", count=size, tilt=tilt), counts)
    assert math.isclose(sum(share.values()), size)
    assert all(0 < value <= 1 for value in share.values())
    ordered = sorted(counts, key=lambda site: counts[site])
    assert all(share[a] >= share[b] * (1 - 1e-9) for a, b in pairwise(ordered))
    free = [site for site in counts if share[site] < 1 - 1e-9]
    for site in free:  # in proportion to n^-tilt among those not always asked
        assert share[site] * counts[site] ** tilt == pytest.approx(share[free[0]] * counts[free[0]] ** tilt)


def test_tilted_turns_keep_to_their_shares() -> None:
    counts = {"big": 100_000, "mid": 10_000, "small": 800, "tiny": 60}
    rule = AggregationSection(selection="tilted", count=2, tilt=0.5)
    share = inclusions(rule, counts)
    taken = turns(schedule(rule, counts, 2000, SharedSeed.of(3)))
    for site in counts:
        assert abs(taken[site] - 2000 * share[site]) <= 3
    assert taken["tiny"] > taken["small"] > taken["mid"] > taken["big"] > 0


def test_poisson_sampling_is_independent_and_may_ask_nobody() -> None:
    counts = dict.fromkeys("abcde", 10)
    asked = schedule(AggregationSection(selection="poisson", fraction=0.3), counts, 4000, SharedSeed.of(1))
    sizes = Counter(len(cohort) for cohort in asked)
    for k in range(6):
        expected = 4000 * math.comb(5, k) * 0.3**k * 0.7 ** (5 - k)
        assert abs(sizes[k] - expected) < 5 * math.sqrt(expected) + 5
    assert all(abs(taken - 1200) < 5 * math.sqrt(4000 * 0.21) for taken in turns(asked).values())


@pytest.mark.parametrize(("fraction", "size"), [(0.1, 1), (0.5, 3), (0.6, 3), (1.0, 5)])
def test_a_fraction_is_a_fixed_number_of_sites(fraction: float, size: int) -> None:
    rule = AggregationSection(selection="fraction", fraction=fraction)
    asked = schedule(rule, dict.fromkeys("abcde", 10), 7, SharedSeed.of(0))
    assert {len(cohort) for cohort in asked} == {size}


def test_the_schedule_is_the_seed_s_alone_and_pairs_vary() -> None:
    counts = dict.fromkeys("abcd", 10)
    rule = AggregationSection(selection="count", count=2)
    first = schedule(rule, counts, 60, SharedSeed.of(0))
    assert first == schedule(rule, dict(reversed(counts.items())), 60, SharedSeed.of(0))
    assert first != schedule(rule, counts, 60, SharedSeed.of(1))
    assert len(set(first)) == 6  # every pair comes up: no site is tied to another
    assert schedule(AggregationSection(), counts, 2, SharedSeed.of(0)) == (("a", "b", "c", "d"),) * 2
