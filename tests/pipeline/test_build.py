"""Which steps a plan's public numbers lead to under a secure sum."""

import math

import pytest

from consilia.core.errors import IllegalChain
from consilia.core.ring import Ring
from consilia.core.spec import Segment, Unit, UpdateSpec
from consilia.pipeline.build import Integers, Messages, build
from consilia.pipeline.grid import Grid, Rounding, rounded_l2
from consilia.pipeline.protection import Protection, learner_spec
from consilia.pipeline.share import NoiseShare

D, SCALE = 100, 2.0**14
SPEC = UpdateSpec((Segment("w", (D,)),), sites=4)
SHARES = Integers(Ring(32), SCALE, 8.0, share_variance=10**8, shares=3)


def protection(unit: Unit) -> Protection:
    return Protection(unit, "distributed", 1.0, 2.0, None, 0, {"a": 3.0, "b": 1.0}, {"a": 10.0, "b": 4.0})


def before_the_share(unit: Unit, messages: Messages = Messages()) -> tuple[Grid, UpdateSpec]:  # noqa: B008
    chain = build(SPEC, protection(unit), messages, SHARES)
    *steps, share = chain.transforms
    assert isinstance(share, NoiseShare)
    spec = learner_spec(SPEC, protection(unit))
    for step in steps:
        spec = step.contract(spec)
    grid = steps[-1]
    assert isinstance(grid, Grid)
    return grid, spec


def test_one_whole_vector_is_rounded_until_its_norm_fits() -> None:
    grid, spec = before_the_share(Unit.SITE)
    assert grid.rounding is Rounding.CONDITIONAL
    assert spec.l2_bound == rounded_l2(2.0, SCALE, D, Rounding.CONDITIONAL)
    few, spec = before_the_share(Unit.SITE, Messages(random_k=25))
    assert few.l2 == 8.0
    assert spec.l2_bound == rounded_l2(8.0, SCALE, 25, Rounding.CONDITIONAL)


def test_a_sum_of_records_is_rounded_once() -> None:
    grid, spec = before_the_share(Unit.RECORD)
    assert grid.rounding is Rounding.COUPLED
    assert spec.l2_bound == pytest.approx(0.5 * SCALE + math.sqrt(D))


def test_coordinates_of_each_sites_own_choice_are_no_sum() -> None:
    with pytest.raises(IllegalChain, match="the same coordinates from every site"):
        build(SPEC, protection(Unit.NONE), Messages(top_k=5), Integers(Ring(32), SCALE, 8.0))
