import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilia.plan.schedule import inclusions
from consilia.plan.schema import AggregationSection
from consilia.plan.weights import weights

COUNTS = {"big": 100_000, "small": 800}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (AggregationSection(weights="n"), (100_000, 800)),
        (AggregationSection(weights="power", alpha=0.5), (math.sqrt(100_000), math.sqrt(800))),
        (AggregationSection(weights="power", alpha=0.0), (1, 1)),
        (AggregationSection(weights="uniform"), (1, 1)),
        (AggregationSection(weights="capped", cap=5000), (5000, 800)),
    ],
)
def test_weights_follow_the_plan(rule: AggregationSection, expected: tuple[float, float]) -> None:
    assert tuple(weights(rule, COUNTS).values()) == pytest.approx(expected)


@given(sizes=st.lists(st.integers(1, 100_000), min_size=2, max_size=8), tilt=st.floats(0, 1), data=st.data())
def test_tilted_sampling_is_corrected_on_average(sizes: list[int], tilt: float, data: st.DataObject) -> None:
    counts = {str(i): size for i, size in enumerate(sizes)}
    rule = AggregationSection(selection="tilted", count=data.draw(st.integers(1, len(sizes))), tilt=tilt)
    share, found = inclusions(rule, counts), weights(rule, counts)
    uniform = (rule.count or 0) / len(counts)
    for site, count in counts.items():
        # Expected weight a round is that of uniform sampling, unless the factor 4 cuts it.
        expected = share[site] * found[site]
        assert expected <= uniform * count * (1 + 1e-9)
        if uniform / share[site] <= 4:
            assert math.isclose(expected, uniform * count)
        assert found[site] <= 4 * count
