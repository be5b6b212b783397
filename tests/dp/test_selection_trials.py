"""The number of trials follows its law: moments, draws, and a draw from another law is told apart."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from consilia.core.errors import PlanError
from consilia.core.randomness import SecretRng
from consilia.dp import selection_trials
from consilia.dp.selection_trials import Fixed, NegativeBinomial, Poisson, Trials, at_most, trials_from_json

KEY = bytes(range(32))
DRAWS = 4000
LAWS: list[Trials] = [
    NegativeBinomial.of_mean(1.0, 4.0),
    NegativeBinomial.of_mean(0.0, 4.0),
    NegativeBinomial.of_mean(-0.5, 3.0),
    NegativeBinomial.of_mean(0.5, 12.0),
    Poisson(1.0),
    Poisson(6.3),
]


def _p_value(drawn: list[int], law: Trials) -> float:
    """Chi-square over bins that the law fills with at least ten draws each, the tail one of them."""
    edges, mass, filled = [0], 0.0, 0.0
    for count in range(2000):
        mass += law.chance(count)
        filled += law.chance(count)
        if mass * len(drawn) >= 10:
            edges.append(count + 1)
            mass = 0.0
        if (1 - filled) * len(drawn) < 20:
            break
    edges = [*edges[:-1], 10**9] if mass * len(drawn) + (1 - filled) * len(drawn) < 10 else [*edges, 10**9]
    seen = np.histogram(drawn, bins=edges)[0]
    inner = [sum(law.chance(k) for k in range(low, high)) for low, high in pairwise(edges[:-1])]
    expected = len(drawn) * np.array([*inner, 1 - sum(inner)])
    return float(stats.chisquare(seen, expected).pvalue)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_draws_follow_the_law_and_no_other(law: Trials) -> None:
    rng = SecretRng(KEY)
    drawn = [law.draw(rng) for _ in range(DRAWS)]
    assert _p_value(drawn, law) > 1e-4
    other = Poisson(law.mean * 1.5) if isinstance(law, Poisson) else NegativeBinomial.of_mean(law.eta, law.mean * 1.5)  # type: ignore[union-attr]
    assert _p_value(drawn, other) < 1e-6


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_chances_sum_to_one_and_give_the_mean(law: Trials) -> None:
    chances = [law.chance(count) for count in range(1200)]
    assert sum(chances) == pytest.approx(1.0, abs=1e-6)
    assert sum(count * chance for count, chance in enumerate(chances)) == pytest.approx(law.mean, rel=1e-4)


@given(st.floats(-0.99, 1.0), st.floats(1.01, 500.0))
@settings(max_examples=60, deadline=None)
def test_a_law_is_found_for_every_mean(eta: float, mean: float) -> None:
    law = NegativeBinomial.of_mean(eta, mean)
    assert law.mean == pytest.approx(mean, rel=1e-6)
    assert 0 < law.gamma < 1


def test_known_laws() -> None:
    geometric = NegativeBinomial(1.0, 0.25)
    assert [geometric.chance(k) for k in (0, 1, 2, 3)] == pytest.approx([0.0, 0.25, 0.1875, 0.140625])
    logarithmic = NegativeBinomial(0.0, 0.5)
    assert [logarithmic.chance(k) for k in (1, 2)] == pytest.approx(list(stats.logser(0.5).pmf([1, 2])))
    assert [Poisson(2.5).chance(k) for k in range(9)] == pytest.approx(list(stats.poisson(2.5).pmf(range(9))))


def test_a_coin_falls_with_exactly_its_chance_and_never_where_it_cannot() -> None:
    rng = SecretRng(KEY)
    falls = selection_trials._falls
    assert all(falls(rng, Fraction(1)) for _ in range(50))
    assert not any(falls(rng, Fraction(0)) for _ in range(50))
    seen = sum(falls(rng, Fraction(1, 3)) for _ in range(6000))
    assert stats.binomtest(seen, 6000, 1 / 3).pvalue > 1e-4
    assert stats.binomtest(seen, 6000, 1 / 3 * 1.2).pvalue < 1e-6


def test_a_fixed_number_is_drawn_without_the_stream() -> None:
    rng = SecretRng(KEY)
    assert Fixed(7).draw(rng) == 7
    assert rng.token(8) == SecretRng(KEY).token(8)


@pytest.mark.parametrize("law", [*LAWS, Fixed(5)], ids=str)
def test_a_law_is_read_back(law: Trials) -> None:
    assert trials_from_json(law.to_json()) == law


@pytest.mark.parametrize(
    "value", [{}, {"law": "uniform"}, {"law": "poisson", "mean": "many"}, {"law": "fixed", "count": 0}]
)
def test_what_is_no_law_is_not_read(value: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="law"):
        trials_from_json(value)  # type: ignore[arg-type]


def test_at_most_is_the_quantile() -> None:
    assert at_most(NegativeBinomial(1.0, 0.1), 0.95) == int(stats.geom(0.1).ppf(0.95))
    assert at_most(Poisson(10.0), 0.95) == int(stats.poisson(10.0).ppf(0.95))
    assert at_most(Fixed(8), 0.95) == 8


@pytest.mark.parametrize(
    ("eta", "mean"),
    [(-1.0, 5.0), (1.5, 5.0), (float("nan"), 5.0), (1.0, 1.0), (1.0, 0.5), (1.0, 1e9), (1.0, float("nan"))],
)
def test_laws_out_of_range_are_refused(eta: float, mean: float) -> None:
    with pytest.raises(PlanError, match="the number of trials needs"):
        NegativeBinomial.of_mean(eta, mean)


@pytest.mark.parametrize("mean", [0.0, 1e9, float("nan")])
def test_poisson_means_out_of_range_are_refused(mean: float) -> None:
    with pytest.raises(PlanError, match="the number of trials needs"):
        Poisson(mean)
