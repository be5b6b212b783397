"""The accountant against numbers from elsewhere, and against a second accountant written here."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from consilia.core.errors import PlanError
from consilia.core.spec import Adjacency
from consilia.dp.accountant import ORDERS, Bound, bound, rdp_epsilon, rdp_vector
from consilia.dp.event import Event

ORACLES = Path(__file__).parents[1] / "oracles"


def _rows(name: str) -> list[dict[str, str]]:
    with (ORACLES / name).open(newline="") as file:
        return list(csv.DictReader(file))


ROWS = _rows("accounting.csv")


def _bound(row: dict[str, str]) -> Bound:
    event = Event(float(row["sigma"]), float(row["q"]))
    return bound([(event, int(row["steps"]))], float(row["delta"]))


def _ids(rows: list[dict[str, str]]) -> list[str]:
    return [row["id"] for row in rows]


FINITE_PLD = [row for row in ROWS if row["pld"] != "inf" and row["id"] != "E3"]
UNSAMPLED = [row for row in ROWS if row["exact"]]
BRACKETED = [row for row in ROWS if row["prv_low"] and row["id"] != "E3"]


@pytest.mark.parametrize("row", FINITE_PLD, ids=_ids(FINITE_PLD))
def test_pld_agrees_with_the_table(row: dict[str, str]) -> None:
    result = _bound(row)
    assert result.pld == pytest.approx(float(row["pld"]), rel=1e-3)
    assert result.epsilon == min(result.pld, result.rdp)


@pytest.mark.parametrize("row", BRACKETED, ids=_ids(BRACKETED))
def test_inside_the_bracket_of_another_accountant(row: dict[str, str]) -> None:
    assert float(row["prv_low"]) <= _bound(row).epsilon <= float(row["prv_high"])


@pytest.mark.slow
@pytest.mark.skipif(
    bool(np.finfo(np.longdouble).eps > 1e-18),
    reason="no extended precision here: a run this long is bounded by RDP alone",
)
def test_a_million_steps_inside_the_bracket() -> None:
    (row,) = (row for row in ROWS if row["id"] == "E3")
    assert float(row["prv_low"]) <= _bound(row).epsilon <= float(row["prv_high"])


@pytest.mark.parametrize("row", UNSAMPLED, ids=_ids(UNSAMPLED))
def test_never_below_the_exact_value(row: dict[str, str]) -> None:
    result = _bound(row)
    exact = _analytic_gaussian(math.sqrt(int(row["steps"])) / float(row["sigma"]), float(row["delta"]))
    assert exact == pytest.approx(float(row["exact"]), rel=1e-8)
    assert exact <= result.epsilon <= exact * (1 + 1e-8)
    assert result.rdp > exact


def _analytic_gaussian(mu: float, delta: float) -> float:
    # The second accountant: Balle and Wang, by another route (survival functions and Brent's method).
    def excess(epsilon: float) -> float:
        first = stats.norm.sf(epsilon / mu - mu / 2)
        second = math.exp(epsilon + stats.norm.logsf(epsilon / mu + mu / 2))
        return float(first - second) - delta

    return float(optimize.brentq(excess, 0, mu * mu + 20 * mu, xtol=1e-14, rtol=1e-14))


@settings(max_examples=50, deadline=None)
@given(mu=st.floats(0.05, 20), exponent=st.floats(2, 10))
def test_no_sampling_equals_the_second_accountant(mu: float, exponent: float) -> None:
    delta = 10**-exponent
    if stats.norm.cdf(mu / 2) * 2 - 1 <= delta:
        return
    exact = _analytic_gaussian(mu, delta)
    assert bound([(Event(1 / mu), 1)], delta).epsilon == pytest.approx(exact, rel=1e-6, abs=1e-9)


def test_no_sampling_against_dp_accounting_at_the_border_of_sampling() -> None:
    # q just below 1 goes through the PLD, q = 1 through the exact formula: they must meet.
    almost = bound([(Event(2.0, 1 - 1e-9), 10)], 1e-5).epsilon
    assert almost == pytest.approx(bound([(Event(2.0), 10)], 1e-5).epsilon, rel=1e-3)


@pytest.mark.parametrize("row", _rows("rdp_one_step.csv"), ids=lambda row: f"{row['q']}-{row['sigma']}-{row['alpha']}")
def test_rdp_at_integer_orders(row: dict[str, str]) -> None:
    (at,) = np.flatnonzero(float(row["alpha"]) == ORDERS)
    assert rdp_vector(Event(float(row["sigma"]), float(row["q"])))[at] == pytest.approx(float(row["rdp"]), rel=1e-9)


def test_the_orders_are_integers() -> None:
    assert (np.rint(ORDERS) == ORDERS).all()
    assert ORDERS.min() == 2
    assert ORDERS.max() >= 10_000


def test_rdp_keeps_its_digits_at_tiny_rates() -> None:
    # To second order in q: q^2 (exp(1/z^2) - 1) at order 2; a naive sum around 1 has no digits left here.
    value = rdp_vector(Event(1.0, 1e-9))[0]
    assert value == pytest.approx(1e-18 * math.expm1(1.0), rel=1e-6)


@pytest.mark.parametrize("row", ROWS, ids=_ids(ROWS))
def test_rdp_is_valid_and_not_wasteful(row: dict[str, str]) -> None:
    result = _bound(row) if row["id"] != "E3" else None
    by_rdp = result.rdp if result else rdp_epsilon([(Event(0.8, 1e-4), 10**6)], 1e-9)
    low = float(row["exact"] or row["prv_low"] or 0)
    assert by_rdp >= low
    if float(row["q"]) < 0.1 and float(row["sigma"]) >= 0.7:  # elsewhere the best order is below 2 or next to it
        assert by_rdp <= float(row["rdp"]) * 1.06


@pytest.mark.parametrize(
    ("event", "steps", "delta", "at_most"),
    [
        (Event(4.0, 0.00033), 10_000, 1.13e-18, 0.1457),
        (Event(1.0, 0.01), 1_000, 1e-15, 5.40),
        (Event(1.0, 0.01), 1_000, 1e-18, 6.40),
        (Event(0.8, 1e-4), 1_000_000, 1e-15, 3.40),
    ],
)
def test_finite_at_tiny_delta(event: Event, steps: int, delta: float, at_most: float) -> None:
    result = bound([(event, steps)], delta)
    assert 0 < result.epsilon <= at_most
    assert result.accountant.startswith("RDP")


def test_epsilon_does_not_jump_where_the_pld_gives_up() -> None:
    just_above, just_below = (bound([(Event(1.0, 0.01), 1000)], d).epsilon for d in (1.0e-12, 0.99e-12))
    assert just_above <= just_below <= 1.15 * just_above


def test_compositions_merge() -> None:
    delta = 1e-5
    poisson, plain = Event(1.5, 0.04), Event(8.0)
    parts = bound([(poisson, 500), (plain, 3), (poisson, 500), (plain, 1)], delta)
    assert parts == bound([(Event(1.5, 0.04, steps=100), 10), (plain, 4)], delta)
    assert parts.epsilon > bound([(poisson, 1000)], delta).epsilon
    mixed = bound([(Event(5.0), 9), (Event(10.0), 64)], delta)
    assert mixed.epsilon == pytest.approx(_analytic_gaussian(1.0, delta), rel=1e-8)


def test_a_mixed_composition_against_dp_accounting() -> None:
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant()
    accountant.compose(dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(1.2)), 300)
    accountant.compose(dp_accounting.GaussianDpEvent(9.0), 5)
    ours = bound([(Event(1.2, 0.05), 300), (Event(9.0), 5)], 1e-5)
    assert ours.pld == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)


def test_nothing_costs_nothing_and_no_noise_costs_everything() -> None:
    assert bound([], 1e-5).epsilon == 0
    assert bound([(Event(1.0), 0)], 1e-5).epsilon == 0
    assert bound([(Event(1.0, 0.0), 5)], 1e-5).epsilon == 0
    assert bound([(Event(0.0), 1)], 1e-5).epsilon == math.inf
    assert bound([(Event(0.0, 0.1), 1), (Event(1.0), 1)], 1e-5).epsilon == math.inf


def test_replace_one_is_a_plain_gaussian_but_never_amplified() -> None:
    assert bound([(Event(3.0, adjacency=Adjacency.REPLACE_ONE), 4)], 1e-5) == bound([(Event(3.0), 4)], 1e-5)
    with pytest.raises(PlanError, match="add-remove adjacency where records are sampled"):
        bound([(Event(3.0, 0.1, adjacency=Adjacency.REPLACE_ONE), 4)], 1e-5)
    with pytest.raises(PlanError, match="events of one adjacency"):
        bound([(Event(3.0, adjacency=Adjacency.REPLACE_ONE), 4), (Event(3.0), 1)], 1e-5)


def test_every_fault_is_named_at_once() -> None:
    with pytest.raises(PlanError) as caught:
        bound([(Event(-1.0, 2.0, steps=-1), 1), (Event(math.nan), 1)], 0.0)
    assert len(caught.value.problems) == 5
    assert all(problem.hint for problem in caught.value.problems)


@settings(max_examples=40, deadline=None)
@given(z=st.floats(0.5, 20), q=st.floats(1e-4, 0.9), steps=st.integers(1, 20_000), exponent=st.floats(3, 18))
def test_rdp_is_monotone(z: float, q: float, steps: int, exponent: float) -> None:
    delta = 10**-exponent
    here = rdp_epsilon([(Event(z, q), steps)], delta)
    assert math.isfinite(here)
    slack = 1 + 1e-9
    assert rdp_epsilon([(Event(z * 1.1, q), steps)], delta) <= here * slack
    assert rdp_epsilon([(Event(z, q), steps + 1)], delta) >= here / slack
    assert rdp_epsilon([(Event(z, q * 0.9), steps)], delta) <= here * slack
    assert rdp_epsilon([(Event(z, q), steps)], delta * 2) <= here * slack
