"""From real numbers to integers: bounds after rounding, for any input; room in the ring."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from consilia.core.errors import IllegalChain
from consilia.core.randomness import SecretRng, SharedSeed
from consilia.core.ring import Ring
from consilia.core.spec import Encoding, Segment, Unit, UpdateSpec
from consilia.pipeline.clip import Clip
from consilia.pipeline.grid import Cut, Grid, Rounding, Weigh, rounded_l2
from consilia.pipeline.transform import SiteContext, SumContext

D = 12
SPEC = UpdateSpec((Segment("w", (D,)),), unit=Unit.RECORD, sites=4, l2_bound=1.0, range_linf=8.0)
RING = Ring(32)
anything = hnp.arrays(np.float32, D, elements=st.floats(allow_nan=True, allow_infinity=True, width=32))
usual = hnp.arrays(np.float64, D, elements=st.floats(-50, 50))
powers = st.integers(-4, 20).map(lambda k: 2.0**k)


def at_site(number: int = 0, weight: float = 1.0) -> SiteContext:
    return SiteContext(SecretRng(number.to_bytes(32, "big")), SharedSeed.of(0), weight)


def norm(vector: NDArray[np.generic]) -> float:
    return float(np.linalg.norm(vector.astype(np.float64)))


@given(anything, st.floats(0.01, 1))
def test_weighing_makes_finite_and_never_grows(vector: np.ndarray, weight: float) -> None:
    out = Weigh().encode(vector, at_site(weight=weight))
    if np.isfinite(vector).all():
        assert out == pytest.approx(vector.astype(np.float64) * weight, rel=1e-15)
    else:
        assert (out == 0).all()


@pytest.mark.parametrize("weight", [0.0, -1.0, 1.5, math.nan])
def test_a_weight_above_the_largest_is_refused(weight: float) -> None:
    with pytest.raises(IllegalChain, match="a share of the largest"):
        Weigh().encode(np.zeros(D), at_site(weight=weight))


@given(anything, st.floats(1e-3, 1e3))
def test_cutting_bounds_every_coordinate_and_keeps_those_inside(vector: np.ndarray, most: float) -> None:
    out = Cut(most).encode(vector, at_site())
    assert (np.abs(out) <= most).all()
    inside = np.abs(vector.astype(np.float64)) <= most
    assert (out[inside] == vector[inside]).all()
    assert (out[np.isnan(vector)] == 0).all()


@given(usual, usual, st.floats(1e-2, 100))
def test_cutting_brings_no_two_vectors_apart(one: np.ndarray, other: np.ndarray, most: float) -> None:
    cut = Cut(most)
    assert norm(cut.encode(one, at_site()) - cut.encode(other, at_site())) <= norm(one - other) * (1 + 1e-12)


@given(usual, usual, st.floats(1e-9, 2), powers, st.integers(0, 10**6))
def test_one_record_moves_coupled_integers_by_at_most_the_contracts_bound(
    rest: np.ndarray, record: np.ndarray, bound: float, scale: float, seed: int
) -> None:
    assume(norm(record) > 0)
    record *= bound / norm(record)
    grid = Grid(scale, Ring(64))
    stated = grid.contract(SPEC.with_(weighted=True, l2_bound=bound)).l2_bound
    moved = grid.encode(rest + record, at_site(seed)) - grid.encode(rest, at_site(seed))
    assert stated is not None
    assert norm(moved) <= stated * (1 + 1e-12)


def test_the_coupled_bound_is_nearly_attained() -> None:
    # Each coordinate crosses its point of rounding: 1 step in each, though the real vector hardly moves.
    grid, d = Grid(1.0, RING), 1000
    draws = at_site().rng.uniform(d)
    below, above = grid.encode(draws, at_site()), grid.encode(draws + 1e-12, at_site())
    assert norm(above - below) > 0.999 * math.sqrt(d)


@given(anything, powers, st.floats(1e-3, 10), st.floats(0.05, 1), st.integers(0, 10**6))
def test_one_site_moves_conditional_integers_by_at_most_the_contracts_bound(
    vector: np.ndarray, scale: float, bound: float, weight: float, seed: int
) -> None:
    """Clipped as in a run; the neighbour is the site's absence, which is zero."""
    clip, grid = Clip(((D, bound),)), Grid(scale, Ring(64), Rounding.CONDITIONAL, bound)
    context = at_site(seed, weight)
    out = grid.encode(Weigh().encode(clip.encode(vector, context), context), context)
    assert norm(out) <= rounded_l2(weight * bound, scale, D, Rounding.CONDITIONAL)
    stated = grid.contract(Weigh().contract(clip.contract(SPEC))).l2_bound
    assert stated is not None
    assert norm(out) <= stated
    assert (grid.encode(np.zeros(D), context) == 0).all()


@given(hnp.arrays(np.float64, D, elements=st.floats(-1e30, 1e30)), powers)
def test_the_conditional_bound_holds_even_for_an_input_that_nobody_clipped(vector: np.ndarray, scale: float) -> None:
    out = Grid(scale, Ring(64), Rounding.CONDITIONAL, 1.0).encode(vector, at_site())
    assert norm(out) <= rounded_l2(1.0, scale, D, Rounding.CONDITIONAL)


def test_conditional_rounding_draws_again_where_once_is_not_enough() -> None:
    # Half a step in each of many coordinates: one draw in some passes the bound, none may leave.
    d = 400
    vector, bound = np.full(d, 0.5), norm(np.full(d, 0.5))
    grid = Grid(1.0, RING, Rounding.CONDITIONAL, bound)
    limit = rounded_l2(bound, 1.0, d, Rounding.CONDITIONAL)
    norms = [norm(grid.encode(vector, at_site(i))) for i in range(300)]
    once = [norm(Grid(1.0, RING).encode(vector, at_site(i))) for i in range(300)]
    assert max(norms) <= limit < max(once)


def test_an_input_that_no_draw_fits_is_rounded_towards_zero() -> None:
    vector = np.array([1.5, -1.5] * 200)
    grid = Grid(1.0, RING, Rounding.CONDITIONAL, 11.0)  # at most 258 of its squared norm, which is 400 once cut short
    assert (grid.encode(vector, at_site()) == 0).all()
    assert (np.abs(grid.encode(vector / 3, at_site())) <= 1).all()
    half = Grid(1.0, RING, Rounding.CONDITIONAL, 0.0)  # draws have a squared norm of about 200, and at most 110 passes
    assert (half.encode(np.full(400, 0.5), at_site()) == 0).all()


@settings(max_examples=20, deadline=None)
@given(st.floats(-3, 3), st.integers(0, 10**6))
def test_rounding_is_unbiased_and_to_a_neighbour(value: float, seed: int) -> None:
    out = Grid(1.0, RING).encode(np.full(40_000, value), at_site(seed))
    assert set(np.unique(out)) <= {math.floor(value), math.ceil(value)}
    assert out.mean() == pytest.approx(value, abs=5 * 0.5 / 200)


@given(hnp.arrays(np.float64, D, elements=st.floats(-(2.0**62), 2.0**62)), st.integers(0, 10**6))
def test_rounding_is_the_exact_ceiling_of_the_value_less_the_draw(vector: np.ndarray, seed: int) -> None:
    from fractions import Fraction

    out = Grid(1.0, Ring(64)).encode(vector, at_site(seed))
    draws = at_site(seed).rng.uniform(D)
    exact = [math.ceil(Fraction(float(x)) - Fraction(float(u))) for x, u in zip(vector, draws, strict=True)]
    assert out.tolist() == exact


def test_tiny_negative_numbers_are_not_lost_in_their_fraction() -> None:
    # -1.6 x 2^-53 + 1 is no double: taken as one it would tie with the draw below it.
    class Last(SecretRng):
        def uniform(self, size: int) -> NDArray[np.float64]:
            return np.full(size, 1 - 2 * 2.0**-53)

    context = SiteContext(Last(bytes(32)), SharedSeed.of(0))
    assert Grid(1.0, RING).encode(np.full(D, -1.6 * 2.0**-53), context).tolist() == [0] * D
    assert Grid(1.0, RING).encode(np.full(D, -2.4 * 2.0**-53), context).tolist() == [-1] * D


def test_worked_values_after_conditional_rounding() -> None:
    for gamma, factor in ((1e-2, 5.22), (1e-3, 1.124), (3e-4, 1.012), (1e-4, 1.001)):
        assert rounded_l2(1.0, 1 / gamma, 2**20, Rounding.CONDITIONAL) * gamma == pytest.approx(
            factor, abs=6e-4 * factor
        )
    for scale in (1e-3, 1.0, 1e3):
        coupled = rounded_l2(1.0, scale, 100, Rounding.COUPLED)
        assert coupled == scale + 10
        assert rounded_l2(1.0, scale, 100, Rounding.CONDITIONAL) <= coupled


def test_contract_and_decode() -> None:
    out = Grid(2.0**10, RING).contract(SPEC.with_(weighted=True))
    assert (out.encoding, out.ring, out.scale) == (Encoding.RING, RING, 1024.0)
    assert out.l2_bound == pytest.approx(1024 + math.sqrt(D))
    assert out.range_linf == 8 * 1024 + 1
    sent = Grid(2.0**10, RING).contract(SPEC.with_(weighted=True, kept=4)).l2_bound
    assert sent == pytest.approx(1024 + 2)
    total = np.array([1024, -512, 1], np.int64)
    assert Grid(2.0**10, RING).decode(total, SumContext(at_site().rng, SharedSeed.of(0))).tolist() == [
        1,
        -0.5,
        2.0**-10,
    ]


REFUSED = [
    (Grid(1024.0, RING), {}, "with its weight inside"),
    (Grid(1024.0, RING), {"weighted": True, "range_linf": None}, "a bound on each coordinate"),
    (Grid(1024.0, RING), {"weighted": True, "shared_support": False}, "the same coordinates from every site"),
    (Grid(1000.0, RING), {"weighted": True}, "a power of two"),
    (Grid(0.0, RING), {"weighted": True, "l2_bound": None}, "a number above 0"),
    (
        Grid(2.0**26, RING),
        {"weighted": True},
        r"room for 4 sites x 536870913 = 2147483652 steps; got a ring of 32 bits",
    ),
    (Grid(1024.0, RING, Rounding.CONDITIONAL, 0.5), {"weighted": True}, "vectors of norm at most 0.5; got 1"),
    (Grid(1024.0, RING, Rounding.CONDITIONAL), {"weighted": True}, "vectors of norm at most 0; got 1"),
    (Grid(1024.0, RING, Rounding.CONDITIONAL, 1.0), {"weighted": True, "l2_bound": None}, "got no bound"),
    (Grid(1024.0, RING), {"weighted": True, "encoding": Encoding.RING}, "real values; got integers"),
    (Weigh(), {"weighted": True}, "a vector without its weight"),
    (Weigh(), {"encoding": Encoding.RING}, "real values"),
    (Cut(1.0), {"encoding": Encoding.RING}, "real values"),
    (Cut(math.inf), {}, "a range above 0, finite"),
]


@pytest.mark.parametrize(("step", "change", "message"), REFUSED)
def test_contracts_refuse_with_their_reason(step: Grid | Weigh | Cut, change: dict[str, object], message: str) -> None:
    with pytest.raises(IllegalChain, match=message):
        step.contract(SPEC.with_(**change))


def test_scales_that_are_no_power_of_two_serve_where_nothing_is_protected() -> None:
    spec = SPEC.with_(weighted=True, l2_bound=None, unit=Unit.NONE)
    out = Grid((2**19 - 1) / 4.0, RING).contract(Cut(4.0).contract(spec))
    assert out.l2_bound is None
    assert out.range_linf == 2**19
