"""What a site claims is a number, or it is left out."""

import math

import pytest

from consilia.rounds import claims


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, 1e308, -1e16, 10**400, True, None, "7", [1], {"a": 1}, b"1"]
)
def test_what_is_no_number(value: object) -> None:
    assert claims.number(value) is None
    assert claims.rows(value) is None


@pytest.mark.parametrize("value", [0, -1, 0.0, 10**12, 1e12])
def test_what_is_no_number_of_rows(value: object) -> None:
    assert claims.number(value) == value
    assert claims.rows(value) is None


@pytest.mark.parametrize(
    "value", ["", "ab" * 31, "ab" * 33, "AB" * 32, "ab" * 32 + "\n", "x" * 10**6, 7, None, ["ab" * 32]]
)
def test_what_is_no_head_of_a_ledger(value: object) -> None:
    assert claims.head(value) is None


def test_a_head_of_a_ledger() -> None:
    assert claims.head("ab" * 32) == "ab" * 32


def test_numbers() -> None:
    assert claims.rows(5) == 5.0
    assert claims.number(-0.25) == -0.25


def test_a_mean_over_what_is_known() -> None:
    assert claims.mean([(1.0, 3.0), (3.0, 7.0), (9.0, None)]) == 6.0
    assert claims.mean([(1.0, None)]) is None
    assert claims.mean([]) is None
    largest: list[tuple[float, float | None]] = [(1e9, claims.LARGEST)] * 1000
    assert claims.mean(largest) == pytest.approx(claims.LARGEST)
